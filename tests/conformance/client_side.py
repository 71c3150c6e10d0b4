"""The client scenarios: the suite as a server that is behind Waypost, and a client on an official SDK before it.

What the suite sees are the requests of Waypost's upstream side. Each scenario is run with a client of either era,
so what Waypost makes of a request by itself (headers, `_meta`, retries) cannot be the client's doing.
"""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from harness import ENVIRONMENT, Tally
from suite import HERE, Cell, Outcome, applicable, check_names, read_expectations, required, run_suite

# The eras of the client, by the mode that makes it speak them.
MODES = {"legacy": "legacy", "modern": "2026-07-28"}
CONDITIONS = {"@legacy-client", "@modern-client"}
EXPECTED = "expected-client-{}.txt"


# Why some of the suite's scenarios are not run.
NOT_RUN = "because Waypost shows a server the credential that is configured and signs in nowhere"


def is_judged(scenario: str) -> bool:
    """Not signing in, see above; and no extensions, which are optional."""
    return not scenario.startswith(("auth/", "sep-2640-"))


def run_scenario(scenario: str, revision: str, env: dict[str, str], work: Path) -> Outcome:
    command = f"{sys.executable} {HERE / 'drive.py'}"
    which = ["--command", command, "--scenario", scenario, "--spec-version", revision]
    settings = {**env, "CONFORMANCE_WORK": str(work)}
    outcome, code = run_suite(["client", *which], work / scenario.replace("/", "-"), "", settings)
    # On a busy machine a client comes back a little later than told, which the suite itself calls acceptable.
    status, message = outcome.scenarios[scenario].get("client-sse-retry-timing", ("", ""))
    if status == "WARNING" and "slightly late" in message:
        outcome.scenarios[scenario]["client-sse-retry-timing"] = ("SUCCESS", message)
    bad = any(status in ("FAILURE", "WARNING") for status, _ in outcome.scenarios[scenario].values())
    # The suite counts a client that fails, or does not end, as a failed scenario and not as a check.
    status = "FAILURE" if code != 0 and not bad else "SUCCESS"
    outcome.add(scenario, "the-client-ends-well", status, f"see {work}")
    return outcome


def run_cell(revision: str, env: dict[str, str], work: Path) -> Outcome:
    work.mkdir()
    scenarios = sorted(filter(is_judged, applicable(revision, "client")))
    whole = Outcome()
    with ThreadPoolExecutor(2) as pool:
        for outcome in pool.map(lambda scenario: run_scenario(scenario, revision, env, work), scenarios):
            whole.scenarios |= outcome.scenarios
    return whole


def run_client_side(tally: Tally, work: Path, revisions: list[str], *, direct_only: bool) -> None:
    # `node` looks for packages beside the program that it runs.
    program = ENVIRONMENT / "node" / "conformance" / "client.mjs"
    program.parent.mkdir(exist_ok=True)
    shutil.copy(HERE / program.name, program)
    client = {"CONFORMANCE_CLIENT": str(program)}
    for revision in revisions:
        scored = set(filter(is_judged, required(revision, "client")))
        mode = "auto" if revision >= "2026" else "legacy"
        env = {**client, "CLIENT_MODE": mode, "CONFORMANCE_DIRECT": "1"}
        direct = run_cell(revision, env, work / f"client-direct-{revision}")
        cell = Cell(f"{revision} client alone", direct, required=scored)
        cell.judge(tally)
        left = sorted(applicable(revision, "client") - direct.scenarios.keys())
        print(f"{revision} client: {len(left)} scenarios are not run, {NOT_RUN}: {', '.join(left)}", flush=True)
        if direct_only:
            continue
        expected = read_expectations(EXPECTED.format(revision), CONDITIONS)
        check_names(tally, EXPECTED.format(revision), expected, set(direct.scenarios))
        for era, mode in MODES.items():
            run_behind(tally, replace(cell, direct=direct, expected=expected), era, {**client, "CLIENT_MODE": mode}, work)


def run_behind(tally: Tally, cell: Cell, era: str, env: dict[str, str], work: Path) -> None:
    revision = cell.label.split()[0]
    cell.label = f"{revision} {era} client through waypost"
    cell.conditions = {f"@{era}-client"}
    cell.outcome = run_cell(revision, env, work / f"client-{era}-{revision}")
    cell.judge(tally)
