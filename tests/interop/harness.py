"""What the interop and conformance runs share: where things are, processes, Waypost itself, the tally."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()
ENVIRONMENT = TARGET / "test-env"
NODE = ENVIRONMENT / "path" / "node"
NODE_PACKAGES = ENVIRONMENT / "node" / "node_modules"
PYTHON_V1 = ENVIRONMENT / "python-v1" / "bin" / "python"
PYTHON_V2 = ENVIRONMENT / "python-v2" / "bin" / "python"
WAYPOST = Path(os.environ.get("WAYPOST_BIN") or TARGET / "debug" / "waypost").resolve()

# Node of the test environment first, for whoever starts `node` by its name.
CHILD_ENVIRONMENT = {**os.environ, "PATH": f"{ENVIRONMENT / 'path'}:{os.environ['PATH']}", "NO_COLOR": "1"}


def set_up() -> None:
    subprocess.run([ROOT / "tests" / "setup"], check=True)


def require_waypost() -> None:
    if not WAYPOST.is_file():
        raise SystemExit(f"{WAYPOST} is missing: run `cargo build` first, or set WAYPOST_BIN")


def free_ports(count: int) -> list[int]:
    """Ports that were free at the same moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def wait_until(what: str, ready: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} after {seconds:.0f} s")
        time.sleep(0.05)


def accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def descendants(pid: int) -> dict[int, str]:
    """The processes below one, with their command lines."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text()
                parent = int(stat.rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found: dict[int, str] = {}
    open_ends = [pid]
    while open_ends:
        for child in children.get(open_ends.pop(), []):
            with contextlib.suppress(OSError):
                found[child] = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                open_ends.append(child)
    return found


def is_running(pid: int, command: str) -> bool:
    """Whether that very process is still there, and more than a zombie."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        return line == command and ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


class Process:
    """A program in a process group of its own, with its output in a file."""

    def __init__(
        self, name: str, command: list[Any], log: Path, *, env: dict[str, str] | None = None, cwd: Path | None = None
    ):
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self.child = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**CHILD_ENVIRONMENT, **(env or {})},
                cwd=cwd,
                start_new_session=True,
            )

    def wait_for_port(self, port: int, seconds: float = 60) -> None:
        def ready() -> bool:
            if self.child.poll() is not None:
                raise RuntimeError(f"{self.name} exited with {self.child.returncode}:\n{self.tail()}")
            return accepts(port)

        wait_until(f"{self.name} does not listen", ready, seconds)

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, seconds: float = 10) -> int | None:
        """Asks to end, then kills what is left of the group. The exit code, or None if it had to be killed."""
        code: int | None = None
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.child.wait(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        return code


class Waypost(Process):
    """`waypost serve` with a config of the moment. JSON is YAML, so the file is written as JSON."""

    def __init__(self, name: str, config: dict[str, Any], work: Path, *, env: dict[str, str] | None = None):
        self.port, self.admin_port = free_ports(2)
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.config = work / f"{name}.yaml"
        full = {"listen": f"127.0.0.1:{self.port}", "admin": f"127.0.0.1:{self.admin_port}", **config}
        self.config.write_text(json.dumps(full, indent=2))
        super().__init__(name, [WAYPOST, "serve", "-c", self.config], work / f"{name}.log", env=env)

    def admin(self, path: str) -> tuple[int, str]:
        return get(f"http://127.0.0.1:{self.admin_port}{path}")

    def wait_until_ready(self, seconds: float = 60) -> None:
        def ready() -> bool:
            if self.child.poll() is not None:
                raise RuntimeError(f"{self.name} exited with {self.child.returncode}:\n{self.tail()}")
            with contextlib.suppress(OSError):
                return self.admin("/readyz?upstreams=all")[0] == 200
            return False

        try:
            wait_until(f"{self.name} is not ready", ready, seconds)
        except TimeoutError as error:
            with contextlib.suppress(OSError):
                raise RuntimeError(f"{error}: {self.admin('/readyz?upstreams=all')}\n{self.tail()}") from error
            raise


def get(url: str) -> tuple[int, str]:
    return request(url)[::2]


def request(url: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], str]:
    """One HTTP exchange: status, headers in lower case, body."""
    data = None if body is None else json.dumps(body).encode()
    defaults = (
        {}
        if body is None
        else {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
    )
    asked = urllib.request.Request(url, data, {**defaults, **(headers or {})})
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read().decode()
    except urllib.error.HTTPError as answer:
        return answer.code, {k.lower(): v for k, v in answer.headers.items()}, answer.read().decode()


class Tally:
    """Counts checks, and prints one line for each."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.passed = 0
        self.failed: list[str] = []
        self.quiet = quiet

    def check(self, name: str, problem: str | None) -> bool:
        if problem is None:
            self.passed += 1
            if not self.quiet:
                print(f"ok    {name}", flush=True)
        else:
            self.failed.append(name)
            print(f"FAIL  {name}\n      " + problem.replace("\n", "\n      "), flush=True)
        return problem is None

    def close(self, what: str) -> int:
        for name in self.failed:
            print(f"failed: {name}")
        print(f"{what}: {self.passed} passed, {len(self.failed)} failed", flush=True)
        return 1 if self.failed else 0


@contextlib.contextmanager
def stopping(processes: list[Process]) -> Iterator[None]:
    """Stops all of them at the end, whatever happened."""
    try:
        yield
    finally:
        for process in reversed(processes):
            process.stop()
