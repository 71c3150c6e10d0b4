"""The official suite: how it is run, what it found, and how that is judged against what may be lost.

Knows nothing of servers, clients or Waypost; `server_side.py` and `client_side.py` do.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import CHILD_ENVIRONMENT, NODE, NODE_PACKAGES, Tally

HERE = Path(__file__).resolve().parent
SUITE = NODE_PACKAGES / "@modelcontextprotocol" / "conformance"
PROGRAM = [NODE, SUITE / "dist" / "index.js"]
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

    def add(self, scenario: str, check: str, status: str, message: str) -> None:
        checks = self.scenarios.setdefault(scenario, {})
        new = (status, message)
        checks[check] = min(new, checks.get(check, new), key=lambda one: STATUSES.index(one[0]))

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


@dataclass
class Cell:
    """One judged run: its name, what is true of it, and what it is measured by."""

    label: str
    outcome: Outcome
    conditions: set[str] = field(default_factory=set)
    required: set[str] = field(default_factory=set)
    direct: Outcome | None = None
    expected: list[Expectation] = field(default_factory=list)

    def judge(self, tally: Tally) -> None:
        absent = self.required - self.outcome.scenarios.keys()
        if absent:
            tally.check(f"{self.label}: every required scenario was run", f"absent: {', '.join(sorted(absent))}")
        passed, excused = set(), 0
        for scenario in self.outcome.scenarios:
            bad = self.outcome.lost(scenario, self.direct)
            unexpected = self.unexpected(scenario, bad)
            if not bad:
                passed.add(scenario)
            if bad and not unexpected:
                excused += 1
            else:
                problem = "\n".join(f"{check}: {what}" for check, what in unexpected.items())
                tally.check(f"{self.label}: {scenario}", problem or None)
        print(
            f"{self.label}: {len(passed)} of {len(self.outcome.scenarios)} scenarios pass"
            f" ({len(passed & self.required)} of {len(self.required)} scored), {excused} fail as expected",
            flush=True,
        )

    def unexpected(self, scenario: str, bad: dict[str, str]) -> dict[str, str]:
        """What no entry excuses, and entries that excuse nothing."""
        left = dict(bad)
        for entry in self.expected:
            if entry.scenario != scenario or not entry.conditions <= self.conditions:
                continue
            covered = {check for check in bad if entry.check in (None, check)}
            for check in covered:
                left.pop(check, None)
            if not covered:
                left[f"entry '{entry.entry}'"] = "excuses nothing any more: take it out of the list"
        return left


def read_expectations(name: str, conditions: set[str]) -> list[Expectation]:
    path = HERE / name
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        entry, hash_sign, reason = line.partition("#")
        if not entry.strip():
            continue
        if not hash_sign or not reason.strip():
            raise SystemExit(f"{path.name}:{number}: an entry needs a reason")
        target, *wanted = entry.split()
        scenario, _, check = target.partition(":")
        if unknown := set(wanted) - conditions:
            raise SystemExit(f"{path.name}:{number}: unknown condition {unknown}")
        found.append(Expectation(entry.strip(), scenario, check or None, set(wanted)))
    return found


def check_names(tally: Tally, file: str, expected: list[Expectation], known: set[str]) -> None:
    for entry in expected:
        if entry.scenario not in known:
            tally.check(file, f"'{entry.entry}' names no scenario that is run")


def run_suite(
    arguments: list[Any], output: Path, prefix: str = "", env: dict[str, str] | None = None
) -> tuple[Outcome, int]:
    """Runs the suite's program. What it found, and its exit code, which the list of expectations makes up for."""
    shutil.rmtree(output, ignore_errors=True)
    done = subprocess.run(
        [str(part) for part in (*PROGRAM, *arguments, "-o", output)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**CHILD_ENVIRONMENT, **(env or {})},
    )
    (output.parent / f"{output.name}.txt").write_text(done.stdout + done.stderr)
    outcome = Outcome()
    for results in sorted(output.glob(f"{prefix}*/checks.json")):
        match = re.fullmatch(rf"{prefix}(.+)-\d{{4}}-\d\d-\d\dT.*", results.parent.name)
        assert match, results
        for check in json.loads(results.read_text()):
            outcome.add(match[1], check["id"], check["status"], check.get("errorMessage", ""))
    if not outcome.scenarios:
        raise RuntimeError(f"the suite ran no scenario:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return outcome, done.returncode


def required(revision: str, side: str) -> set[str]:
    """The scenarios that an implementation of the revision has to pass, as the suite lists them."""
    path = SUITE / "requirements" / f"{revision}.yaml"
    if not path.is_file():
        return applicable(revision, side)
    section = re.search(rf"^{side}:\n((?:[ #].*\n|\n)+)", path.read_text(), re.MULTILINE)
    assert section, revision
    return set(re.findall(r"^  - (\S+)", section[1], re.MULTILINE))


def applicable(revision: str, side: str) -> set[str]:
    """The scenarios that the suite has for a revision, required or not."""
    listed = subprocess.run(
        [*PROGRAM, "list"], capture_output=True, text=True, check=True, timeout=60, env={**os.environ, "NO_COLOR": "1"}
    ).stdout
    section = re.search(rf"^{side} scenarios.*\n((?:  - .*\n)+)", listed, re.MULTILINE | re.IGNORECASE)
    assert section, listed
    entries = re.findall(r"^  - (\S+) \[(.*)\]", section[1], re.MULTILINE)
    return {name for name, revisions in entries if revision in revisions.split(",")}
