"""Clients without a token, from 401 to a successful call: each finds the authorization server through Waypost.

The authorization server signs with PyJWT, and the clients are the official SDKs, so that nobody here has read both
sides of the same mistake.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from harness import CHILD_ENVIRONMENT, PYTHON_V1, PYTHON_V2, WAYPOST, Process, Tally, Waypost, free_ports, request

HERE = Path(__file__).resolve().parent
TOOL, ARGUMENTS = "words__count_words", {"text": "from 401 to a call"}
CLIENTS = {"python 1": (PYTHON_V1, "oauth_v1.py"), "python 2": (PYTHON_V2, "oauth_v2.py")}


def run_oauth(tally: Tally, processes: list[Process], work: Path) -> None:
    (port,) = free_ports(1)
    issuer = f"http://127.0.0.1:{port}"
    server = Process(
        "authorization", [PYTHON_V1, HERE / "servers" / "authorization.py", port], work / "authorization.log"
    )
    processes.append(server)
    server.wait_for_port(port)
    # The clients ask for a token for the URL that they have.
    ports = free_ports(2)
    url = f"http://127.0.0.1:{ports[0]}/mcp"
    config = {
        "listen": f"127.0.0.1:{ports[0]}",
        "admin": f"127.0.0.1:{ports[1]}",
        "upstreams": {"words": {"command": str(WAYPOST), "args": ["demo", "stdio-legacy"]}},
        "auth": {"jwt": [{"issuer": issuer, "audience": url, "scopes": ["mcp:tools"]}]},
    }
    waypost = Waypost("protected", config, work)
    waypost.port, waypost.admin_port, waypost.url = ports[0], ports[1], url
    processes.append(waypost)
    waypost.wait_until_ready()
    for name, (python, program) in CLIENTS.items():
        judge(tally, f"oauth: {name} finds its way from 401 to a call", run_client(python, program, url))
    rotated = request(f"{issuer}/rotate", {})[0] == 200
    tally.check("oauth: the authorization server has a new key", None if rotated else "it has not")
    for name, (python, program) in CLIENTS.items():
        judge(tally, f"oauth: {name} finds its way with the new key", run_client(python, program, url))
    _, metrics = waypost.admin("/metrics")
    counted = [line for line in metrics.splitlines() if line.startswith("waypost_credentials_refused_total")]
    good = counted and all('reason="missing"' in line for line in counted)
    tally.check("oauth: nothing was refused but requests without a token", None if good else f"{counted}")


def run_client(python: Path, program: str, url: str) -> subprocess.CompletedProcess[str]:
    command = [python, HERE / "clients" / program, url, TOOL, json.dumps(ARGUMENTS)]
    return subprocess.run(
        [str(part) for part in command], env=CHILD_ENVIRONMENT, capture_output=True, text=True, timeout=120
    )


def judge(tally: Tally, what: str, ended: subprocess.CompletedProcess[str]) -> None:
    seen: dict[str, Any] = {}
    if ended.returncode == 0:
        seen = json.loads(ended.stdout.splitlines()[-1])
    good = "5" in str(seen.get("text")) and seen.get("flows") == 1 and seen.get("scope") == "mcp:tools"
    tally.check(what, None if good else f"{seen}\n{ended.stdout[-500:]}\n{ended.stderr[-3000:]}")
