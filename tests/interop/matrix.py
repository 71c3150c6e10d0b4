"""The matrix of official SDKs: every feature, through Waypost, with each SDK as the client and as the server.

The servers are the reference servers of the conformance runs, over HTTP and stdio and in either era that they speak;
the clients are `clients/matrix_*`, in either era that they speak, and each once as a client that cannot be asked.
The client prints what came of every feature; what has to come is here. `ABSENT` says what cannot come, and why; an
entry that excuses nothing is a failure. The SDK rmcp is at both ends in `tests/it/rmcp_peers.rs`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import ENVIRONMENT, NODE, PYTHON_V1, PYTHON_V2, Process, Tally, Waypost, free_ports
from plans import run_group
from upstreams import MODERN

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "conformance"))

from server_side import PYTHON_ONE, PYTHON_TWO, TYPESCRIPT, TYPESCRIPT_ONE, Reference, prepare, surface

SERVERS: dict[str, Reference] = {
    "python-1": PYTHON_ONE,
    "python-2": PYTHON_TWO,
    "typescript-1": TYPESCRIPT_ONE,
    "typescript-2": TYPESCRIPT,
}
WORDS = ["Tool execution started", "Tool processing data", "Tool execution completed"]
Got = dict[str, Any]


@dataclass(frozen=True)
class Upstream:
    """A server as Waypost reaches it."""

    name: str
    sdk: str
    era: str
    transport: str


@dataclass(frozen=True)
class Client:
    sdk: str
    era: str
    can_be_asked: bool

    @property
    def name(self) -> str:
        return f"{self.sdk} {self.era}" + ("" if self.can_be_asked else ", which cannot be asked")


@dataclass(frozen=True)
class Absent:
    """A feature that cannot be there, between which peers, and why."""

    features: frozenset[str]
    holds: Callable[[Client, Upstream], bool]
    reason: str


def own_processes(upstream: Upstream) -> bool:
    return upstream.transport == "stdio" and upstream.era == "legacy"


ABSENT = [
    Absent(
        frozenset({"list change"}),
        lambda _, upstream: own_processes(upstream),
        "each caller has a process of its own, and what changes there is not so in the one that lists are read from",
    ),
]


# What has to come


def words_of(got: Got) -> str:
    return str(got.get("text"))


def form(action: str, nonce: str) -> Callable[[Got], bool]:
    def judge(got: Got) -> bool:
        said, _, content = words_of(got).partition(", content=")
        content = content.replace("undefined", "null")
        wanted = {"username": nonce, "email": f"{nonce}@example.com"} if action == "accept" else None
        return said == f"User response: action={action}" and (json.loads(content) or None) == wanted

    return judge


def says(text: str) -> Callable[[Got], bool]:
    return lambda got: words_of(got) == text and not got.get("isError")


def wanted(client: Client, nonce: str) -> dict[str, Callable[[Got], bool]]:
    """The features by name, each with the judge of what came."""
    if not client.can_be_asked:
        refused = dict.fromkeys(("form accept", "sampling", "roots"), is_refused)
        return {**refused, "log": lambda got: got["heard"] == [] and not got.get("isError", True)}
    return {
        "form accept": form("accept", nonce),
        "form decline": form("decline", nonce),
        "form cancel": form("cancel", nonce),
        "url": says("action=accept"),
        "sampling": says(f"LLM response: model: {nonce}"),
        "sampling with tools": says("The model uses weather"),
        "roots": says(f"Roots: file:///matrix/{nonce}"),
        "log": lambda got: got["heard"] == WORDS,
        "progress": is_progress(client),
        "completion": lambda got: got.get("values") == ["paris", "park", "party"],
        "cancellation": lambda got: got == {"ended": True, "cancelled": True},
        "resource update": lambda got: got["heard"] is True,
        "list change": lambda got: got["seen"] == [True, True],
    }


def is_refused(got: Got) -> bool:
    """The server hears at once that nobody can answer, and so does who called; nobody waits."""
    return "error" in got or got.get("isError") is True


def is_progress(client: Client) -> Callable[[Got], bool]:
    # The TypeScript SDK drops progress that arrives in one read with the result.
    least = 2 if client.sdk.startswith("typescript") else 3
    return lambda got: least <= len(got["steps"]) and got["steps"] == [0, 50, 100][: len(got["steps"])]


# The peers


def make_upstreams(work: Path, processes: list[Process]) -> tuple[list[Upstream], dict[str, Any]]:
    prepare(work)
    upstreams: list[Upstream] = []
    config: dict[str, Any] = {}
    started: list[tuple[Process, int]] = []
    # Ports that are asked for one after the other may be one port.
    ports = free_ports(sum(len(one.eras) for one in SERVERS.values()))

    def add(reference: Reference, sdk: str, era: str, transport: str) -> None:
        upstream = Upstream(f"{sdk}-{era}-{transport}", sdk, era, transport)
        upstreams.append(upstream)
        if transport == "http":
            port = ports.pop()
            log = work / f"matrix-{upstream.name}.log"
            server = Process(upstream.name, [*reference.command, "http", port], log, env=surface(work))
            processes.append(server)
            started.append((server, port))
            config[upstream.name] = {"url": f"http://127.0.0.1:{port}/mcp", "era": era}
            return
        command, *arguments = [str(part) for part in (*reference.command, "stdio")]
        # On a pipe of its own a session can be asked, and hears its own log.
        isolation = "per_session" if era == "legacy" else "shared"
        launched = {"command": command, "args": arguments, "env": surface(work), "isolation": isolation}
        config[upstream.name] = {**launched, "era": era}

    for transport in ("http", "stdio"):
        for sdk, reference in SERVERS.items():
            for era in reference.eras:
                add(reference, sdk, era, transport)
    for server, port in started:
        server.wait_for_port(port)
    return upstreams, config


def make_clients() -> list[Client]:
    eras = {"python-1": ["legacy"], "python-2": ["legacy", MODERN], "typescript-1": ["legacy"]}
    eras["typescript-2"] = ["legacy", MODERN]
    return [Client(sdk, era, able) for sdk, spoken in eras.items() for era in spoken for able in (True, False)]


def command_of(client: Client) -> list[Any]:
    modules = ENVIRONMENT / "node" / "interop" / "clients"
    return {
        "python-1": [PYTHON_V1, HERE / "clients" / "matrix_v1.py"],
        "python-2": [PYTHON_V2, HERE / "clients" / "matrix_v2.py"],
        "typescript-1": [NODE, modules / "matrix_v1.mjs"],
        "typescript-2": [NODE, modules / "matrix_v2.mjs"],
    }[client.sdk]


def carry_out(client: Client, nonce: str, plan: dict[str, Any], work: Path) -> tuple[list[Got], str]:
    """What the client printed, and what went wrong with it itself."""
    path, errors = work / f"matrix-{nonce}.json", work / f"matrix-{nonce}.log"
    mode = {"mode": client.era, "can_be_asked": client.can_be_asked, "nonce": nonce}
    path.write_text(json.dumps({**plan, **mode}))
    output, code = run_group([*command_of(client), path], errors, 300)
    records = [json.loads(line) for line in output.splitlines()]
    closed = any(record["feature"] == "close" for record in records)
    problem = "" if code == 0 and closed else f"exit code {code}\n{errors.read_text(errors='replace')[-3000:]}"
    return records, problem


def judge(tally: Tally, client: Client, nonce: str, upstreams: list[Upstream], records: list[Got]) -> set[int]:
    """Holds everything that came against what has to come. The entries of `ABSENT` that were needed."""
    needed: set[int] = set()
    by_cell = {(record.get("server"), record["feature"]): record.get("got") for record in records}
    for upstream in upstreams:
        problems = []
        for feature, is_good in wanted(client, nonce).items():
            got = by_cell.get((upstream.name, feature))
            good = got is not None and is_good(got)
            excuses = [
                number
                for number, absent in enumerate(ABSENT)
                if feature in absent.features and absent.holds(client, upstream)
            ]
            if not good and excuses:
                needed.update(excuses)
            elif not good:
                problems.append(f"{feature}: {json.dumps(got)[:400]}")
        problem = "\n".join(problems) or None
        tally.check(f"matrix: {client.name} at {upstream.name}", problem)
    return needed


def run_matrix(tally: Tally, processes: list[Process], work: Path) -> None:
    upstreams, config = make_upstreams(work, processes)
    token = hashlib.sha256(f"matrix {work}".encode()).hexdigest()
    clients = {"ada": {"tokens": [{"env": "MATRIX_TOKEN"}]}}
    full = {"upstreams": config, "clients": clients}
    waypost = Waypost("waypost-matrix", full, work, env={"MATRIX_TOKEN": token})
    processes.append(waypost)
    waypost.wait_until_ready()
    plan: dict[str, Any] = {"url": waypost.url, "token": token, "servers": [upstream.name for upstream in upstreams]}
    # There a client waits for a moment only, and not until it is sure.
    plan["without_list_change"] = [upstream.name for upstream in upstreams if own_processes(upstream)]
    needed: set[int] = set()
    for number, client in enumerate(make_clients()):
        nonce = f"m{number}"
        records, problem = carry_out(client, nonce, plan, work)
        needed |= judge(tally, client, nonce, upstreams, records)
        tally.check(f"matrix: {client.name} carries out everything and closes", problem or None)
    for number, absent in enumerate(ABSENT):
        what = f"matrix: {', '.join(sorted(absent.features))} cannot be there: {absent.reason}"
        tally.check(what, None if number in needed else "it is there: take the entry out")
