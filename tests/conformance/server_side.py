"""The server scenarios: the suite as a client, at a reference server directly and at Waypost in front of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import ENVIRONMENT, NODE, PYTHON_V1, PYTHON_V2, Process, Tally, Waypost, free_ports, stopping
from suite import HERE, Cell, Expectation, Outcome, check_names, read_expectations, required, run_suite

REVISIONS = ("2025-06-18", "2025-11-25", "2026-07-28")
# The oldest revision has no scenario of its own, so what it may lose is in the list of the next.
LISTS = {"2025-06-18": "2025-11-25"}
CONDITIONS = {"@legacy", "@modern", "@stdio", "@http"}
# The suite runs these and does not score them: its authors have put them on hold.
ON_HOLD = re.compile(r"tasks-status-notifications")


def era_of(revision: str) -> str:
    return "modern" if revision >= "2026" else "legacy"


@dataclass
class Reference:
    """A server with the surface that the suite calls."""

    name: str
    command: list[Any]
    eras: tuple[str, ...]
    transports: tuple[str, ...] = ("http", "stdio")
    arguments: list[str] = field(default_factory=list)
    # Over what the suite of the other era is run, too.
    crosswise: tuple[str, ...] = ()
    # Waypost has to find out itself which era it is.
    of_one_era: bool = False
    url: str = ""
    # Whether it has what the suite runs and does not score, too: extensions, and what servers should do besides.
    is_complete: bool = False
    # What the suite finds without Waypost, by revision.
    direct: dict[str, Outcome] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        return re.sub(r"\W+", "-", self.name)

    def judged(self, outcome: Outcome, scored: set[str]) -> Outcome:
        def counts(scenario: str) -> bool:
            return scenario in scored or (self.is_complete and not ON_HOLD.fullmatch(scenario))

        return Outcome({name: checks for name, checks in outcome.scenarios.items() if counts(name)})

    def speaks(self, revision: str) -> bool:
        return era_of(revision) in self.eras

    def suites(self, transport: str, era: str, revisions: Iterable[str]) -> list[str]:
        """The revisions of which the suite is run at Waypost with this server behind it."""
        crosswise = transport in self.crosswise
        return [revision for revision in revisions if crosswise or era_of(revision) == era]


PYTHON_TWO = Reference(
    "python 2",
    [PYTHON_V2, HERE / "reference_server.py"],
    ("legacy", "modern"),
    crosswise=("http", "stdio"),
    is_complete=True,
)
PYTHON_ONE = Reference(
    "python 1", [PYTHON_V1, HERE / "reference_server_v1.py"], ("legacy",), crosswise=("http",), of_one_era=True
)
# `node` looks for packages beside the program that it runs.
PROGRAMS = ENVIRONMENT / "node" / "conformance"
PROGRAM = PROGRAMS / "reference_server.mjs"
TYPESCRIPT = Reference("typescript 2", [NODE, PROGRAM], ("legacy", "modern"))
TYPESCRIPT_ONE = Reference(
    "typescript 1", [NODE, PROGRAMS / "reference_server_v1.mjs"], ("legacy",), of_one_era=True
)
TYPESCRIPT_MODERN = Reference(
    "typescript 2, modern only",
    [NODE, PROGRAM],
    ("modern",),
    transports=("http",),
    arguments=["modern"],
    crosswise=("http",),
    of_one_era=True,
)
REFERENCES = [PYTHON_TWO, TYPESCRIPT, TYPESCRIPT_MODERN, PYTHON_ONE, TYPESCRIPT_ONE]


def prepare(work: Path) -> None:
    """What the servers list is asked of the first, so that they are one surface on several SDKs."""
    PROGRAMS.mkdir(exist_ok=True)
    for program in HERE.glob("reference_*.mjs"):
        shutil.copy(program, PROGRAMS)
    surface = subprocess.run([*PYTHON_TWO.command, "surface"], capture_output=True, text=True, check=True).stdout
    (work / "surface.json").write_text(surface)


def run_at(url: str, revision: str, output: Path) -> Outcome:
    # The oldest revision has no list of requirements; what the suite has for it is required.
    which = ["--requirements", revision] if revision > "2025-06-18" else ["--suite", "all", "--spec-version", revision]
    return run_suite(["server", "--url", url, *which], output, "server-")[0]


def surface(work: Path) -> dict[str, str]:
    return {"SURFACE": str(work / "surface.json")}


def through_waypost(reference: Reference, transport: str, era: str, work: Path) -> Waypost:
    upstream: dict[str, object] = {"prefix": "", "era": "auto" if reference.of_one_era else era}
    if transport == "stdio":
        command, *arguments = [str(part) for part in (*reference.command, "stdio")]
        # On a pipe of its own a session can be asked.
        isolation = "per_session" if era == "legacy" else "shared"
        upstream |= {"command": command, "args": arguments, "env": surface(work), "isolation": isolation}
    else:
        upstream |= {"url": reference.url}
    name = f"waypost-{reference.slug}-{transport}-{era}"
    return Waypost(name, {"upstreams": {"reference": upstream}}, work)


def start(reference: Reference, work: Path) -> Process:
    (port,) = free_ports(1)
    reference.url = f"http://127.0.0.1:{port}/mcp"
    command = [*reference.command, "http", port, *reference.arguments]
    server = Process(reference.name, command, work / f"{reference.slug}.log", env=surface(work))
    server.wait_for_port(port)
    return server


def run_server_side(tally: Tally, work: Path, revisions: list[str], *, direct_only: bool) -> None:
    prepare(work)
    scored = {revision: required(revision, "server") for revision in revisions}
    processes: list[Process] = []
    with stopping(processes):
        for reference in REFERENCES:
            processes.append(start(reference, work))
            for revision in filter(reference.speaks, revisions):
                outcome = run_at(reference.url, revision, work / f"direct-{reference.slug}-{revision}")
                outcome = reference.judged(outcome, scored[revision])
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
        for reference in REFERENCES:
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
            suites = reference.suites(transport, era, scored)
            if not suites:
                continue
            waypost = through_waypost(reference, transport, era, work)
            with stopping([waypost]):
                waypost.wait_until_ready()
                for revision in suites:
                    outcome = run_at(waypost.url, revision, work / f"{waypost.name}-{revision}")
                    cell = Cell(
                        f"{revision} through waypost, {reference.name} as {era} upstream over {transport}",
                        reference.judged(outcome, scored[revision]),
                        {f"@{transport}", f"@{era}"},
                        scored[revision],
                        # A server of one era has no run of the other's suite; its surface is the same.
                        reference.direct.get(revision, PYTHON_TWO.direct[revision]),
                        expected[revision],
                    )
                    cell.judge(tally)
