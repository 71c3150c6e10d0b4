#!/usr/bin/env python3
"""Runs the official conformance suite, against the reference server directly and through Waypost.

For each revision the suite is run against the reference server over HTTP, then against Waypost with that server
as its one upstream and `prefix: ""`, once for every transport and era of the upstream. Directly, every scenario
must pass. Through Waypost, a check is lost when it fails, warns, or is skipped or absent although it succeeds
directly. `expected-<revision>.txt` lists what may be lost, each entry with the feature that is missing; anything
else that is lost is a failure, and so is an entry that loses nothing any more.

    expected-<revision>.txt:   scenario[:check] [@condition]… # reason

A condition is `@legacy`, `@modern`, `@stdio` or `@http` and means the upstream; all of an entry's must hold.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "interop"))

from harness import (
    CHILD_ENVIRONMENT,
    NODE,
    NODE_PACKAGES,
    PYTHON_V2,
    TARGET,
    Process,
    Tally,
    Waypost,
    free_ports,
    require_waypost,
    set_up,
    stopping,
)

HERE = Path(__file__).resolve().parent
REVISIONS = ("2025-11-25", "2026-07-28")
SUITE = NODE_PACKAGES / "@modelcontextprotocol" / "conformance"
REFERENCE = [PYTHON_V2, HERE / "reference_server.py"]
# The suite runs these and does not score them: an optional extension, and one that its authors have put on hold.
NOT_JUDGED = re.compile(r"tasks-status-notifications|server-sse-polling")
# From worst to best: of several checks with one id the worst counts.
STATUSES = ("FAILURE", "WARNING", "SKIPPED", "INFO", "SUCCESS")
# A server may answer with JSON where another streams; the suite then says INFO instead of SUCCESS.
FREE_TO_DIFFER = {"server-sse-streams-functional"}


@dataclass
class Expectation:
    entry: str
    scenario: str
    check: str | None
    conditions: set[str]


@dataclass
class Outcome:
    """One run of the suite: for every scenario the status of each check, and what was wrong."""

    scenarios: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)

    def lost(self, scenario: str, direct: Outcome | None) -> dict[str, str]:
        """The checks that are bad, by themselves or because they succeed in the direct run."""
        checks = self.scenarios[scenario]
        bad = {
            check: f"{status}: {message}"
            for check, (status, message) in checks.items()
            if status in ("FAILURE", "WARNING")
        }
        if direct is None:
            return bad
        for check, (status, _) in direct.scenarios[scenario].items():
            here, message = checks.get(check, ("ABSENT", ""))
            # What a scenario does not come to after a failure is not a loss of its own.
            relevant = here in ("SKIPPED", "INFO") or (here == "ABSENT" and not bad)
            if status == "SUCCESS" and relevant and check not in FREE_TO_DIFFER:
                bad[check] = f"{here}, though it succeeds directly {message}"
        return bad


def read_expectations(revision: str) -> list[Expectation]:
    path = HERE / f"expected-{revision}.txt"
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        entry, hash_sign, reason = line.partition("#")
        if not entry.strip():
            continue
        if not hash_sign or not reason.strip():
            raise SystemExit(f"{path.name}:{number}: an entry needs a reason")
        target, *conditions = entry.split()
        scenario, _, check = target.partition(":")
        unknown = set(conditions) - {"@legacy", "@modern", "@stdio", "@http"}
        if unknown:
            raise SystemExit(f"{path.name}:{number}: unknown condition {unknown}")
        found.append(Expectation(entry.strip(), scenario, check or None, set(conditions)))
    return found


def run_suite(url: str, revision: str, output: Path) -> Outcome:
    shutil.rmtree(output, ignore_errors=True)
    command = [NODE, SUITE / "dist" / "index.js", "server", "--url", url, "--requirements", revision, "-o", output]
    # The exit code says whether everything passed, which is judged here by the list of expectations.
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=300, check=False, env=CHILD_ENVIRONMENT
    )
    (output.parent / f"{output.name}.txt").write_text(done.stdout + done.stderr)
    outcome = Outcome()
    for results in sorted(output.glob("server-*/checks.json")):
        match = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT.*", results.parent.name)
        assert match, results
        if NOT_JUDGED.fullmatch(match[1]):
            continue
        checks = outcome.scenarios.setdefault(match[1], {})
        for check in json.loads(results.read_text()):
            new = (check["status"], check.get("errorMessage", ""))
            checks[check["id"]] = min(new, checks.get(check["id"], new), key=lambda one: STATUSES.index(one[0]))
    if not outcome.scenarios:
        raise RuntimeError(f"the suite ran no scenario:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return outcome


def required(revision: str) -> set[str]:
    """The scenarios that an implementation of the revision has to pass, as the suite lists them."""
    text = (SUITE / "requirements" / f"{revision}.yaml").read_text()
    section = re.search(r"^server:\n((?:[ #].*\n|\n)+)", text, re.MULTILINE)
    assert section, revision
    return set(re.findall(r"^  - (\S+)", section[1], re.MULTILINE))


def describe(bad: dict[str, str]) -> str:
    return "\n".join(f"{check}: {problem}" for check, problem in bad.items())


def judge(
    tally: Tally,
    label: str,
    revision: str,
    outcome: Outcome,
    *,
    direct: Outcome | None = None,
    upstream: set[str] = frozenset(),
    expected: list[Expectation] = (),
) -> None:
    scored = required(revision)
    absent = scored - outcome.scenarios.keys()
    if absent:
        tally.check(f"{label}: every required scenario was run", f"absent: {', '.join(sorted(absent))}")
    passed, excused = set(), 0
    for scenario in outcome.scenarios:
        bad = outcome.lost(scenario, direct)
        here = [entry for entry in expected if entry.scenario == scenario and entry.conditions <= upstream]
        unexpected = dict(bad)
        for entry in here:
            covered = {check for check in bad if entry.check in (None, check)}
            for check in covered:
                unexpected.pop(check, None)
            if not covered:
                unexpected[f"entry '{entry.entry}'"] = "excuses nothing any more: take it out of the list"
        if not bad:
            passed.add(scenario)
        if bad and not unexpected:
            excused += 1
        else:
            tally.check(f"{label}: {scenario}", describe(unexpected) or None)
    print(
        f"{label}: {len(passed)} of {len(outcome.scenarios)} scenarios pass"
        f" ({len(passed & scored)} of {len(scored)} scored), {excused} fail as expected",
        flush=True,
    )


def through_waypost(transport: str, era: str, work: Path, url: str) -> Waypost:
    upstream: dict[str, object] = {"prefix": "", "era": era}
    if transport == "stdio":
        upstream |= {"command": str(REFERENCE[0]), "args": [str(REFERENCE[1]), "stdio"]}
    else:
        upstream |= {"url": url}
    return Waypost(f"waypost-{transport}-{era}", {"upstreams": {"reference": upstream}}, work)


def main() -> int:
    set_up()
    direct_only = os.environ.get("CONFORMANCE_DIRECT_ONLY") == "1"
    if not direct_only:
        require_waypost()
    revisions = sys.argv[1:] or list(REVISIONS)
    tally = Tally(quiet=True)
    TARGET.mkdir(exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="conformance-", dir=TARGET))

    (port,) = free_ports(1)
    reference_url = f"http://127.0.0.1:{port}/mcp"
    processes: list[Process] = [Process("reference server", [*REFERENCE, "http", port], work / "reference.log")]
    with stopping(processes):
        processes[0].wait_for_port(port)
        direct = {}
        for revision in revisions:
            direct[revision] = run_suite(reference_url, revision, work / f"direct-{revision}")
            judge(tally, f"{revision} direct", revision, direct[revision])
        if not direct_only:
            expectations = {revision: read_expectations(revision) for revision in revisions}
            for revision in revisions:
                for entry in expectations[revision]:
                    if entry.scenario not in direct[revision].scenarios:
                        tally.check(f"expected-{revision}.txt", f"'{entry.entry}' names no scenario of the suite")
            for transport in ("http", "stdio"):
                for era in ("legacy", "modern"):
                    waypost = through_waypost(transport, era, work, reference_url)
                    processes.append(waypost)
                    waypost.wait_until_ready()
                    for revision in revisions:
                        judge(
                            tally,
                            f"{revision} through waypost, {era} upstream over {transport}",
                            revision,
                            run_suite(waypost.url, revision, work / f"{transport}-{era}-{revision}"),
                            direct=direct[revision],
                            upstream={f"@{transport}", f"@{era}"},
                            expected=expectations[revision],
                        )
                    waypost.stop()
    code = tally.close("conformance scenarios")
    if code == 0:
        shutil.rmtree(work)
    else:
        print(f"the suite's results and the logs are in {work}")
    return code


if __name__ == "__main__":
    sys.exit(main())
