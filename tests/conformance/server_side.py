"""The server scenarios: the suite as a client, at a reference server directly and at Waypost in front of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import PYTHON_V2, Process, Tally, Waypost, free_ports, stopping
from suite import HERE, Cell, Expectation, Outcome, check_names, read_expectations, required, run_suite

REVISIONS = ("2025-06-18", "2025-11-25", "2026-07-28")
# The oldest revision has no scenario of its own, so what it may lose is in the list of the next.
LISTS = {"2025-06-18": "2025-11-25"}
CONDITIONS = {"@legacy", "@modern", "@stdio", "@http"}
# The suite runs these and does not score them: its authors have put them on hold.
NOT_JUDGED = re.compile(r"tasks-status-notifications")


@dataclass
class Reference:
    """A server with the surface that the suite calls."""

    name: str
    command: list[Any]
    eras: tuple[str, ...]
    transports: tuple[str, ...] = ("http", "stdio")
    url: str = ""
    # What the suite finds without Waypost, by revision.
    direct: dict[str, Outcome] = field(default_factory=dict)

    def speaks(self, revision: str) -> bool:
        return ("modern" if revision >= "2026" else "legacy") in self.eras


PYTHON_TWO = Reference("python 2", [PYTHON_V2, HERE / "reference_server.py"], ("legacy", "modern"))


def references() -> list[Reference]:
    return [PYTHON_TWO]


def run_at(url: str, revision: str, output: Path) -> Outcome:
    # The oldest revision has no list of requirements; what the suite has for it is required.
    which = ["--requirements", revision] if revision > "2025-06-18" else ["--suite", "all", "--spec-version", revision]
    outcome, _ = run_suite(["server", "--url", url, *which], output, "server-")
    judged = {name: checks for name, checks in outcome.scenarios.items() if not NOT_JUDGED.fullmatch(name)}
    return Outcome(judged)


def through_waypost(reference: Reference, transport: str, era: str, work: Path) -> Waypost:
    upstream: dict[str, object] = {"prefix": "", "era": era}
    if transport == "stdio":
        command, *arguments = [str(part) for part in (*reference.command, "stdio")]
        upstream |= {"command": command, "args": arguments}
    else:
        upstream |= {"url": reference.url}
    name = f"waypost-{reference.name}-{transport}-{era}".replace(" ", "-")
    return Waypost(name, {"upstreams": {"reference": upstream}}, work)


def start(reference: Reference, work: Path) -> Process:
    (port,) = free_ports(1)
    reference.url = f"http://127.0.0.1:{port}/mcp"
    log = work / f"{reference.name.replace(' ', '-')}.log"
    server = Process(f"reference server {reference.name}", [*reference.command, "http", port], log)
    server.wait_for_port(port)
    return server


def run_server_side(tally: Tally, work: Path, revisions: list[str], *, direct_only: bool) -> None:
    scored = {revision: required(revision, "server") for revision in revisions}
    processes: list[Process] = []
    with stopping(processes):
        for reference in references():
            processes.append(start(reference, work))
            for revision in filter(reference.speaks, revisions):
                outcome = run_at(reference.url, revision, work / f"direct-{reference.name}-{revision}")
                reference.direct[revision] = outcome
                Cell(f"{revision} at {reference.name}", outcome, required=scored[revision]).judge(tally)
        if direct_only:
            return
        expected = {}
        for revision in revisions:
            file = f"expected-{LISTS.get(revision, revision)}.txt"
            expected[revision] = read_expectations(file, CONDITIONS)
            if revision not in LISTS:
                check_names(tally, file, expected[revision], set(PYTHON_TWO.direct[revision].scenarios))
        for reference in references():
            run_through(tally, reference, work, scored, expected)


def run_through(
    tally: Tally,
    reference: Reference,
    work: Path,
    scored: dict[str, set[str]],
    expected: dict[str, list[Expectation]],
) -> None:
    for transport in reference.transports:
        for era in reference.eras:
            waypost = through_waypost(reference, transport, era, work)
            with stopping([waypost]):
                waypost.wait_until_ready()
                for revision in scored:
                    cell = Cell(
                        f"{revision} through waypost, {reference.name} as {era} upstream over {transport}",
                        run_at(waypost.url, revision, work / f"{reference.name}-{transport}-{era}-{revision}"),
                        {f"@{transport}", f"@{era}"},
                        scored[revision],
                        # A server of one era has no run of the other's suite; its surface is the same.
                        reference.direct.get(revision, PYTHON_TWO.direct[revision]),
                        expected[revision],
                    )
                    cell.judge(tally)
