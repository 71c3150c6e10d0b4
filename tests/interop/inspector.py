"""The MCP Inspector on the command line: one process for each request."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import CHILD_ENVIRONMENT, NODE, NODE_PACKAGES, WAYPOST, Tally
from upstreams import Call, Server


@dataclass
class Target:
    """How it gets to Waypost: what it is called, and the arguments that say where."""

    name: str
    arguments: list[str]


def reached(url: str, token: str) -> Target:
    return Target("inspector", [url, "--transport", "http", "--header", f"Authorization: Bearer {token}"])


def launched(config: Path, environment: dict[str, str], work: Path) -> Target:
    """Launched as `waypost connect` says."""
    connect = [WAYPOST, "connect", "inspector", "--stdio", "--config", config]
    page = json.loads(subprocess.run(connect, capture_output=True, check=True).stdout)
    entry = page["mcpServers"]["waypost"]
    entry["args"] += ["--wait", "60"]
    entry["env"] = environment
    path = work / "inspector.json"
    path.write_text(json.dumps(page))
    return Target("inspector over stdio", ["--config", str(path), "--server", "waypost"])


def run_inspector(tally: Tally, target: Target, era: str, servers: list[Server], nonce: str) -> None:
    program = NODE_PACKAGES / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"

    def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [NODE, program, "--cli", *target.arguments, "--protocol-era", era, *arguments]
        return subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            env=CHILD_ENVIRONMENT,
        )

    def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
        try:
            return json.loads(done.stdout)
        except ValueError:
            return {"exit": done.returncode, "stdout": done.stdout[-500:], "stderr": done.stderr[-1500:]}

    name = f"{target.name} {era}"
    listing = answer(ask("--method", "tools/list"))
    wanted = [f"{server.name}__{tool}" for server in servers for tool in server.tools]
    names = [tool["name"] for tool in listing.get("tools", [])]
    problem = (
        None if names == wanted else f"expected {len(wanted)} tools, got {len(names)}: {json.dumps(listing)[:600]}"
    )
    tally.check(f"{name}: lists exactly the tools of every server, in order", problem)

    def call(server: Server, one: Call) -> tuple[str, str | None]:
        arguments = ["--method", "tools/call", "--tool-name", f"{server.name}__{one.tool}"]
        for key, value in one.arguments.items():
            arguments += ["--tool-arg", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
        return f"{name}: call {server.name}: {one.tool}", one.judge(answer(ask(*arguments)))

    # One plain call each: the tool's own errors make this program exit with an error of its own.
    chosen = [(server, server.calls(nonce)[1 if server.ours else 0]) for server in servers]
    with ThreadPoolExecutor(2) as pool:
        for check, problem in pool.map(lambda pair: call(*pair), chosen):
            tally.check(check, problem)
    done = ask("--method", "tools/call", "--tool-name", "nobody__echo")
    told = done.returncode == 5 and "nobody__echo" in done.stdout + done.stderr
    tally.check(
        f"{name}: an unknown tool is an error", None if told else f"{done.returncode} {done.stdout} {done.stderr}"
    )

    load = ["--method", "tools/call", "--tool-name", "python-v2-http__echo", "--tool-arg", f"text={nonce}"]
    done = ask(*load, "--load", "--load-requests", "200", "--load-concurrency", "20")
    summary = answer(done)
    good = summary.get("requests") == summary.get("ok") == 200
    tally.check(f"{name}: 200 calls, 20 at once, all of them good", None if good else json.dumps(summary)[:800])
