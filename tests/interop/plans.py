"""The clients in front of Waypost: the plan that each carries out, and how what it saw is judged."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import CHILD_ENVIRONMENT, ENVIRONMENT, NODE, NODE_PACKAGES, PYTHON_V1, PYTHON_V2, Tally
from upstreams import LEGACY, MODERN, Call, Judge, Server, echoed, text_is

HERE = Path(__file__).resolve().parent
LARGE = 200 * 1024


@dataclass
class Client:
    name: str
    command: list[Any]
    mode: str
    protocol: str
    token: str = ""
    # For a client that speaks over stdio: the program it starts, and that program's environment.
    bridge: Callable[[str, str], list[str]] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    # Whether it speaks HTTP+SSE of 2024-11-05.
    over_sse: bool = False
    # Whether it says that it can be asked for roots, sampling and elicitation.
    can_be_asked: bool = False


@dataclass
class Plan:
    """What one client does, with the judges of the answers by id."""

    url: str
    client: Client
    servers: list[Server]
    prefix: Callable[[Server], str]
    nonce: str
    judges: dict[str, Judge] = field(default_factory=dict)
    steps: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, step: str, server: Server, call: Call) -> None:
        identity = name = f"{step} {server.name}: {call.tool}"
        repeated = 1
        while identity in self.judges:
            repeated += 1
            identity = f"{name} {repeated}"
        self.judges[identity] = call.judge
        wanted = {"id": identity, "tool": self.prefix(server) + call.tool, "arguments": call.arguments}
        self.steps.setdefault(step, []).append(wanted)

    def fill(self, *, only_parallel: bool) -> None:
        for step in ("call", "unknown", "large", "progress", "parallel"):
            self.steps[step] = []
        own = [server for server in self.servers if server.ours]
        for number in range(4):
            for server in own:
                # The later ones are answered first.
                text = f"{self.nonce} {server.name} {number}"
                delay = 800 - 200 * number
                self.add("parallel", server, Call("slow_echo", {"text": text, "delay_ms": delay}, text_is(text)))
        for server in self.servers:
            if server.kind.startswith("everything"):
                for number in range(4):
                    text = f"{self.nonce} {server.name} {number}"
                    self.add("parallel", server, Call("echo", {"message": text}, text_is(f"Echo: {text}")))
        if only_parallel:
            return
        for server in self.servers:
            for call in server.calls(self.nonce):
                self.add("call", server, call)
        for server in own:
            large = (f"{self.nonce} {server.name} " + "0123456789abcdef" * (LARGE // 16))[:LARGE]
            self.add("large", server, Call("echo", {"text": large}, echoed(large)))
            label = f"{self.nonce} {server.name}"
            self.add("progress", server, Call("count", {"to": 3, "label": label}, text_is("counted to 3")))

    def unknown(self, *names: str) -> None:
        self.steps["unknown"] = [{"id": name, "tool": name, "arguments": {}} for name in names]

    def run(self, work: Path) -> list[dict[str, Any]]:
        slug = f"{self.client.name}-{self.nonce}".replace(" ", "-")
        path = work / f"plan-{slug}.json"
        described: dict[str, Any] = {
            "url": self.url.removesuffix("/mcp") + "/sse" if self.client.over_sse else self.url,
            "token": self.client.token,
            "mode": self.client.mode,
            "can_be_asked": self.client.can_be_asked,
            **self.steps,
        }
        if self.client.bridge:
            described["command"] = self.client.bridge(self.url, self.client.token)
            cache = {"MCP_REMOTE_CONFIG_DIR": str(work / f"mcp-remote-{slug}")}
            described["env"] = {**CHILD_ENVIRONMENT, **cache, **self.client.environment}
        path.write_text(json.dumps(described))
        output, code = run_group([*self.client.command, path], work / f"client-{slug}.log")
        records = []
        for line in output.splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                records.append({"step": "crash", "problem": f"no JSON on standard output: {line[:300]!r}"})
        if code != 0:
            tail = (work / f"client-{slug}.log").read_text(errors="replace")[-3000:]
            records.append({"step": "crash", "problem": f"exit code {code}:\n{tail}"})
        return records


def run_group(command: list[Any], errors: Path, seconds: float = 180) -> tuple[bytes, int | str]:
    """Runs a program in a process group of its own, of which nothing is left afterwards."""
    with errors.open("wb") as log:
        child = subprocess.Popen(
            [str(part) for part in command],
            stdout=subprocess.PIPE,
            stderr=log,
            env=CHILD_ENVIRONMENT,
            start_new_session=True,
        )
    try:
        output, _ = child.communicate(timeout=seconds)
        code: int | str = child.returncode
    except subprocess.TimeoutExpired:
        code = f"none: still running after {seconds:.0f} s"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    if isinstance(code, str):
        output, _ = child.communicate()
    return output, code


def make_launchers(command: list[str], environment: dict[str, str]) -> list[Client]:
    """The clients that launch Waypost themselves, and speak with it over stdio."""
    clients = make_clients({"python": "", "typescript": ""})
    chosen = [client for client in clients if not client.bridge and not client.over_sse]
    for client in chosen:
        client.name += " over stdio"
        client.bridge = lambda *_: command
        client.environment = environment
    return chosen


def make_clients(tokens: dict[str, str]) -> list[Client]:
    clients = HERE / "clients"
    modules = ENVIRONMENT / "node" / "interop" / "clients"
    python_v1: list[Any] = [PYTHON_V1, clients / "python_v1.py"]
    python_v2: list[Any] = [PYTHON_V2, clients / "python_v2.py"]
    typescript_v1: list[Any] = [NODE, modules / "typescript_v1.mjs"]
    typescript_v2: list[Any] = [NODE, modules / "typescript_v2.mjs"]

    def remote(url: str, token: str) -> list[str]:
        proxy = NODE_PACKAGES / "mcp-remote" / "dist" / "proxy.js"
        header = f"Authorization: Bearer {token}"
        return [str(NODE), str(proxy), url, "--allow-http", "--transport", "http-only", "--header", header]

    python, typescript = tokens["python"], tokens["typescript"]
    return [
        Client("python-v1", python_v1, "legacy", LEGACY, python),
        Client("python-v2 legacy", python_v2, "legacy", LEGACY, python),
        Client("python-v2 auto", python_v2, "auto", MODERN, python),
        Client("python-v2 pinned", python_v2, MODERN, MODERN, python),
        Client("typescript-v1", typescript_v1, "legacy", LEGACY, typescript),
        Client("python-v1 over sse", python_v1, "legacy", LEGACY, python, over_sse=True),
        Client("typescript-v1 over sse", typescript_v1, "legacy", LEGACY, typescript, over_sse=True),
        Client("typescript-v2 legacy", typescript_v2, "legacy", LEGACY, typescript),
        Client("typescript-v2 auto", typescript_v2, "auto", MODERN, typescript),
        Client("typescript-v2 pinned", typescript_v2, MODERN, MODERN, typescript),
        Client("mcp-remote legacy", python_v2, "legacy", LEGACY, typescript, bridge=remote),
        Client("mcp-remote auto", python_v2, "auto", MODERN, typescript, bridge=remote),
    ]


def judge_answer(record: dict[str, Any], judge: Judge) -> str | None:
    if "result" not in record:
        return f"no result: {json.dumps(record)[:400]}"
    return judge(record["result"])


def judge_unknown(record: dict[str, Any]) -> str | None:
    error = record.get("error")
    wanted = f"Unknown tool: {record['id']}"
    if not error or error["code"] != -32602 or wanted not in error["message"]:
        return f"expected error -32602 with {wanted!r}, got {json.dumps(record)[:400]}"
    return None


def judge_progress(record: dict[str, Any]) -> str | None:
    wanted = [[number, 3, f"at {number}"] for number in (1, 2, 3)]
    return None if record.get("events") == wanted else f"expected progress {wanted}, got {record.get('events')}"


def judge_listing(
    listed: list[dict[str, Any]], servers: list[Server], prefix: Callable[[Server], str], reference: dict[str, Any]
) -> dict[str, str | None]:
    """What is listed, in which order, and that descriptions and schemas are the server's own."""
    names = [tool["name"] for tool in listed]
    wanted = [prefix(server) + tool for server in servers for tool in server.tools]
    problems: dict[str, str | None] = {"lists exactly the tools of every server, in order": None}
    if names != wanted:
        absent, surplus = [n for n in wanted if n not in names], [n for n in names if n not in wanted]
        problems["lists exactly the tools of every server, in order"] = (
            f"absent {absent}, surplus {surplus}" if absent or surplus else f"another order: {names}"
        )
    different = []
    for tool in listed:
        own = reference.get(tool["name"])
        if own and any(tool.get(key) != own.get(key) for key in ("description", "inputSchema", "annotations")):
            different.append(f"{tool['name']}: {json.dumps(tool)[:300]} is not {json.dumps(own)[:300]}")
    problems["lists descriptions, schemas and annotations as they are"] = "\n".join(different[:5]) or None
    return problems


def judge_run(tally: Tally, plan: Plan, records: list[dict[str, Any]], reference: dict[str, Any]) -> None:
    name = plan.client.name
    by_step: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        by_step.setdefault(record["step"], []).append(record)

    connect = by_step.get("connect", [{}])[0]
    got = connect.get("protocol")
    tally.check(f"{name}: connects at {plan.client.protocol}", None if got == plan.client.protocol else f"got {got}")
    if plan.client.protocol == LEGACY:
        tally.check(f"{name}: ping is answered", None if "ping" in by_step else "no answer")
    listed = by_step.get("list", [{}])[0].get("tools", [])
    for check, problem in judge_listing(listed, plan.servers, plan.prefix, reference).items():
        tally.check(f"{name}: {check}", problem)

    seen: set[str] = set()
    for step in ("call", "large", "progress", "parallel"):
        for record in by_step.get(step, []):
            seen.add(record["id"])
            problem = judge_answer(record, plan.judges[record["id"]])
            if problem is None and step == "progress":
                problem = judge_progress(record)
            if step != "parallel" or problem:
                tally.check(f"{name}: {record['id']}", problem)
    for record in by_step.get("unknown", []):
        tally.check(f"{name}: unknown tool {record['id']}", judge_unknown(record))
    missing = plan.judges.keys() - seen
    asked, answered = len(plan.steps["parallel"]), len(by_step.get("parallel", []))
    tally.check(
        f"{name}: {asked} calls at once, each with its own answer", None if asked == answered else f"{answered}"
    )
    waited = sum(wanted["arguments"].get("delay_ms", 0) for wanted in plan.steps["parallel"]) / 1000
    took = by_step.get("parallel-time", [{"seconds": waited}])[0]["seconds"]
    if waited > 0 and plan.steps["call"]:
        problem = None if took < waited / 2 else f"{took:.1f} s for calls that wait {waited:.1f} s one after the other"
        tally.check(f"{name}: calls at once do not wait for each other", problem)
    logs = [str(record["data"]) for record in by_step.get("log", [])]
    foreign = [line for line in logs if not line.startswith(plan.nonce)]
    tally.check(f"{name}: no log message of somebody else's call", f"{foreign}" if foreign else None)
    for server in plan.servers:
        if server.ours and server.log_is_attributable and plan.steps["progress"]:
            wanted = [f"{plan.nonce} {server.name} step {number}" for number in (1, 2, 3)]
            mine = [line for line in logs if line.startswith(f"{plan.nonce} {server.name} ")]
            tally.check(f"{name}: log messages of {server.name}", None if mine == wanted else f"got {mine}")
    problem = "\n".join(record["problem"] for record in by_step.get("crash", []))
    if missing:
        problem += f"\nnot carried out: {sorted(missing)[:10]}"
    tally.check(f"{name}: carries out everything and closes", problem or (None if "close" in by_step else "did not"))
