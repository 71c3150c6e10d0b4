#!/usr/bin/env python3
"""Waypost in front of real servers, all at once, listed and called by real clients.

The servers come from npm and PyPI, and from `servers/` on the official SDKs; the clients in `clients/` are thin
programs on the official SDKs that carry out a plan and print what they saw. All judgement is on this side. With
`--direct` the clients talk to each HTTP server without Waypost, which shows what the peers can do on their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness import (
    PYTHON_V1,
    PYTHON_V2,
    TARGET,
    WAYPOST,
    Process,
    Tally,
    Waypost,
    descendants,
    is_running,
    request,
    require_waypost,
    set_up,
    stopping,
    wait_until,
)
from inspector import launched, reached, run_inspector
from plans import Client, Plan, judge_run, make_clients, make_launchers
from upstreams import LEGACY, MODERN, Server, make_servers, own_calls

from examples import run_examples
from extensions import run_extensions
from oauth import run_oauth
from resumption import run_resumption

HERE = Path(__file__).resolve().parent


def run_raw(tally: Tally, waypost: Waypost, tokens: dict[str, str]) -> None:
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}

    def bearer(token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"}

    for label, headers in (
        ("no token", {}),
        ("a wrong token", bearer("0" * 64)),
        ("no bearer", {"Authorization": "Basic eDp5"}),
    ):
        status, answered, body = request(waypost.url, listing, headers)
        challenge = answered.get("www-authenticate", "")
        good = status == 401 and challenge.startswith("Bearer") and "result" not in body
        tally.check(
            f"raw: {label} is answered 401 with a challenge", None if good else f"{status} {answered} {body[:300]}"
        )

    status, _, body = request(waypost.url, listing, bearer(tokens["guest"]))
    names = [tool["name"] for tool in json.loads(body).get("result", {}).get("tools", [])] if status == 200 else []
    good = names == ["time__get_current_time", "time__convert_time"]
    tally.check("raw: a client lists only what it is allowed", None if good else f"{status} {body[:300]}")
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "git__git_log", "arguments": {}}}
    status, _, body = request(waypost.url, call, bearer(tokens["guest"]))
    error = json.loads(body).get("error", {}) if status == 200 else {}
    good = error.get("code") == -32602 and error.get("message") == "Unknown tool: git__git_log"
    tally.check("raw: what a client may not call looks unknown to it", None if good else f"{status} {body[:300]}")

    status, metrics = waypost.admin("/metrics")
    counted = [line for line in metrics.splitlines() if line.startswith("waypost_") and 'tool="git__git_log"' in line]
    tally.check(
        "raw: the metrics count calls by tool", None if status == 200 and counted else f"{status} {metrics[:600]}"
    )


def run_stop(tally: Tally, waypost: Waypost) -> None:
    children = descendants(waypost.child.pid)
    expected = sum("command" in upstream for upstream in json.loads(waypost.config.read_text())["upstreams"].values())
    tally.check(
        "stop: every stdio server runs as a child before",
        None if len(children) >= expected else f"{len(children)} children: {children}",
    )
    started = time.monotonic()
    waypost.child.terminate()
    try:
        code: int | str = waypost.child.wait(20)
    except subprocess.TimeoutExpired:
        code = "no exit within 20 s"
    tally.check("stop: SIGTERM ends Waypost with exit code 0", None if code == 0 else f"{code}\n{waypost.tail()}")
    left = {pid: command for pid, command in children.items() if is_running(pid, command)}
    took = f"{time.monotonic() - started:.1f} s after the signal"
    tally.check("stop: no child is left", f"{took}: {left}" if left else None)


def list_directly(servers: list[Server], work: Path, upstream_token: str) -> dict[str, Any]:
    """The tools of every server as the SDK lists them without Waypost, by their exposed names."""
    python_v2 = [PYTHON_V2, HERE / "clients" / "python_v2.py"]
    python_v1 = [PYTHON_V1, HERE / "clients" / "python_v1.py"]
    tools: dict[str, Any] = {}

    def listing(server: Server) -> list[dict[str, Any]]:
        upstream = server.upstream
        client = Client("direct", python_v1 if server.over_sse else python_v2, upstream.get("era", "auto"), "")
        if server.over_http:
            client.token = upstream_token if "headers" in upstream else ""
            client.can_be_asked = server.kind == "everything-asked"
        else:
            client.bridge = lambda *_: [upstream["command"], *upstream["args"]]
            client.environment = upstream.get("env", {})
        plan = Plan(upstream.get("url", ""), client, [], lambda _: "", server.name)
        plan.fill(only_parallel=True)
        return next((record["tools"] for record in plan.run(work) if record["step"] == "list"), [])

    with ThreadPoolExecutor(2) as pool:
        for server, listed in zip(servers, pool.map(listing, servers)):
            if [tool["name"] for tool in listed] != server.tools:
                raise RuntimeError(f"{server.name} itself lists {[tool['name'] for tool in listed]}")
            for tool in listed:
                tools[f"{server.name}__{tool['name']}"] = tool
    return tools


def wait_for_late_tools(waypost: Waypost, token: str, wanted: int) -> None:
    """`everything` adds tools after the handshake. If they never come, that is for the clients' checks to say."""

    def complete() -> bool:
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        _, _, body = request(waypost.url, listing, {"Authorization": f"Bearer {token}"})
        return len(json.loads(body)["result"]["tools"]) >= wanted

    with contextlib.suppress(TimeoutError):
        wait_until("the list of tools is not complete", complete, 10)


def run_directly(tally: Tally, servers: list[Server], work: Path) -> None:
    for server in servers:
        if not server.over_http or server.over_sse or "headers" in server.upstream:
            continue
        kind = server.kind.removesuffix("-asked")
        legacy_only = kind in ("everything", "python-v1")
        for client in make_clients({"python": "", "typescript": ""}):
            if client.over_sse:
                continue
            # The bridge shakes hands in the older era whatever its client speaks, which this server refuses.
            if server.kind == "typescript-v2" and (client.protocol == LEGACY or client.bridge):
                continue
            if legacy_only and client.mode == MODERN:
                continue
            client.protocol = LEGACY if legacy_only else client.protocol
            client.name += f" directly at {server.name}"
            one = Server(server.name, kind, server.upstream, server.calls, server.ours)
            if server.ours:
                protocol = client.protocol if server.kind != "typescript-v2" else "modern"
                one.calls = own_calls(protocol)
            plan = Plan(
                server.upstream["url"], client, [one], lambda _: "", f"direct-{len(tally.failed) + tally.passed}"
            )
            plan.fill(only_parallel=False)
            judge_run(tally, plan, plan.run(work), {})


def run_through_waypost(
    tally: Tally, servers: list[Server], processes: list[Process], work: Path, upstream_token: str
) -> None:
    reference = list_directly(servers, work, upstream_token)
    tokens = {name: hashlib.sha256(f"{name} {work}".encode()).hexdigest() for name in ("python", "typescript", "guest")}
    (work / "token").write_text(tokens["guest"] + "\n")
    digest = hashlib.sha256(tokens["python"].encode()).hexdigest()
    config = {
        "upstreams": {server.name: server.upstream for server in servers},
        "clients": {
            "python": {"tokens": [f"sha256:{digest}"]},
            "typescript": {"tokens": [{"env": "INTEROP_CLIENT_TOKEN"}]},
            "guest": {"tokens": [{"file": str(work / "token")}], "tools": {"allow": ["time__*"]}},
        },
    }
    secrets = {"INTEROP_UPSTREAM_TOKEN": upstream_token, "INTEROP_CLIENT_TOKEN": tokens["typescript"]}
    waypost = Waypost("waypost", config, work, env=secrets)
    processes.append(waypost)
    waypost.wait_until_ready()

    def prefix(server: Server) -> str:
        return f"{server.name}__"

    wait_for_late_tools(waypost, tokens["python"], sum(len(server.tools) for server in servers))

    def plan_for(client: Client, nonce: str, *, only_parallel: bool) -> Plan:
        plan = Plan(waypost.url, client, servers, prefix, nonce)
        plan.fill(only_parallel=only_parallel)
        if not only_parallel:
            plan.unknown("nobody__echo", "time__no_such_tool", "git_log")
        return plan

    clients = make_clients(tokens)
    for number, client in enumerate(clients):
        plan = plan_for(client, f"n{number}", only_parallel=False)
        judge_run(tally, plan, plan.run(work), reference)
    for number, era in enumerate(("legacy", "modern")):
        run_inspector(tally, reached(waypost.url, tokens["typescript"]), era, servers, f"i{number}")

    # Everybody at the same time: all of them count their requests from the same small numbers.
    with ThreadPoolExecutor(len(clients)) as pool:
        plans = [plan_for(client, f"together-{number}", only_parallel=True) for number, client in enumerate(clients)]
        for plan, records in zip(plans, pool.map(lambda plan: plan.run(work), plans)):
            plan.client.name += ", all clients together"
            judge_run(tally, plan, records, reference)

    run_raw(tally, waypost, tokens)
    run_stop(tally, waypost)


def run_launched(tally: Tally, servers: list[Server], work: Path, upstream_token: str) -> None:
    """Every client launches Waypost itself, with upstreams of its own, and speaks with it over stdio."""
    own = [server for server in servers if server.ours]
    config = work / "launched.yaml"
    config.write_text(json.dumps({"upstreams": {server.name: server.upstream for server in own}}))
    command = [str(WAYPOST), "stdio", "--config", str(config), "--wait", "60"]
    secrets = {"INTEROP_UPSTREAM_TOKEN": upstream_token}
    for number, client in enumerate(make_launchers(command, secrets)):
        plan = Plan("", client, own, lambda server: f"{server.name}__", f"p{number}")
        plan.fill(only_parallel=False)
        plan.unknown("nobody__echo", "git_log")
        judge_run(tally, plan, plan.run(work), {})
    for number, era in enumerate(("legacy", "modern")):
        run_inspector(tally, launched(config, secrets, work), era, own, f"l{number}")


def main() -> int:
    direct = sys.argv[1:] == ["--direct"]
    set_up()
    if not direct:
        require_waypost()
    tally = Tally()
    TARGET.mkdir(exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="interop-", dir=TARGET))
    upstream_token = hashlib.sha256(f"upstream {work}".encode()).hexdigest()
    processes: list[Process] = []
    with stopping(processes):
        servers = make_servers(work, processes, upstream_token)
        if direct:
            run_directly(tally, servers, work)
        else:
            run_through_waypost(tally, servers, processes, work, upstream_token)
            run_launched(tally, servers, work, upstream_token)
            run_extensions(tally, processes, work)
            run_resumption(tally, processes, work)
            run_oauth(tally, processes, work)
            run_examples(tally, processes, work)
    code = tally.close("interop checks")
    if code == 0:
        shutil.rmtree(work)
    else:
        print(f"plans and logs are in {work}")
    return code


if __name__ == "__main__":
    sys.exit(main())
