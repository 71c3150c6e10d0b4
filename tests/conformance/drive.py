#!/usr/bin/env python3
"""What the suite's client scenarios start: Waypost in front of the scenario's server, and a client in front of it.

``drive.py URL``, with the scenario in the environment as the suite sets it. The client's exit code is this one's.
With ``CONFORMANCE_DIRECT=1`` the client talks to the scenario's server itself. Logs go to ``CONFORMANCE_WORK``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))

from harness import CHILD_ENVIRONMENT, NODE, Waypost, stopping


def run_client(url: str) -> int:
    # `node` finds packages beside the program that it runs, so the environment's packages are linked there.
    program = Path(os.environ["CONFORMANCE_CLIENT"])
    return subprocess.run([NODE, program, url], check=False, env=CHILD_ENVIRONMENT).returncode


def main() -> int:
    url = sys.argv[1]
    if os.environ.get("CONFORMANCE_DIRECT") == "1":
        return run_client(url)
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"].replace("/", "-")
    work = Path(tempfile.mkdtemp(prefix=f"{scenario}-", dir=os.environ["CONFORMANCE_WORK"]))
    # A server of the suite answers within milliseconds; the client must not come before its lists are there.
    waypost = Waypost("waypost", {"upstreams": {"suite": {"url": url, "prefix": ""}}}, work)
    with stopping([waypost]):
        waypost.wait_until_ready(20)
        code = run_client(waypost.url)
    print(waypost.tail(60), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
