#!/usr/bin/env python3
"""Runs the official conformance suite, at the reference servers directly and through Waypost.

The server scenarios are run at every reference server over HTTP, then at Waypost with that server as its one
upstream and `prefix: ""`, once for every transport and era of the upstream. To keep the run short, the whole grid
of both eras' suites is run with one server, on the Python SDK 2.x; with those on the Python SDK 1.x and the
TypeScript SDKs the suites of the upstream's own era, and with some that have one era only crosswise over HTTP.
The client scenarios are run with a client of an official SDK alone, then with Waypost between the two, once for
each era of the client. Directly, every scenario must pass. Through Waypost, a check is lost when it fails, warns,
or is skipped or absent although it succeeds directly. A list says what may be lost, each entry with the feature
that is missing; anything else that is lost is a failure, and so is an entry that loses nothing any more.

    expected-<revision>.txt, expected-client-<revision>.txt:   scenario[:check] [@condition]… # reason

A condition is `@legacy`, `@modern`, `@stdio` or `@http` and means the upstream, or, for the client scenarios,
`@legacy-client` or `@modern-client`. All of an entry's must hold. `expected-2025-11-25.txt` holds for 2025-06-18 too.

    run.py [server | client] [REVISION]…        some of it
    CONFORMANCE_DIRECT_ONLY=1 run.py            the reference servers and the client alone
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "interop"))

from client_side import run_client_side
from harness import TARGET, Tally, require_waypost, set_up
from server_side import REVISIONS, run_server_side


def main() -> int:
    set_up()
    direct_only = os.environ.get("CONFORMANCE_DIRECT_ONLY") == "1"
    if not direct_only:
        require_waypost()
    sides = [one for one in sys.argv[1:] if one in ("server", "client")] or ["server", "client"]
    revisions = [one for one in sys.argv[1:] if one not in sides] or list(REVISIONS)
    tally = Tally(quiet=True)
    TARGET.mkdir(exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="conformance-", dir=TARGET))
    if "server" in sides:
        run_server_side(tally, work, revisions, direct_only=direct_only)
    if "client" in sides:
        run_client_side(tally, work, revisions, direct_only=direct_only)
    code = tally.close("conformance scenarios")
    if code == 0:
        shutil.rmtree(work)
    else:
        print(f"the suite's results and the logs are in {work}")
    return code


if __name__ == "__main__":
    sys.exit(main())
