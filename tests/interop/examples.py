"""The examples as a reader runs them: installed, built, served by Waypost, called with the README's own command."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from harness import CHILD_ENVIRONMENT, ENVIRONMENT, ROOT, WAYPOST, Process, Tally, accepts, free_ports, wait_until

ADDRESS = "127.0.0.1:8080"


def code_blocks(readme: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)


def prepare(name: str, work: Path) -> Path:
    """A copy of the example with its packages beside it, as its README installs them."""
    copy = work / name
    made_by_others = shutil.ignore_patterns("node_modules", "dist", ".venv", "__pycache__")
    shutil.copytree(ROOT / "examples" / name, copy, ignore=made_by_others)
    if name == "word-counter-ts":
        (copy / "node_modules").symlink_to((ENVIRONMENT / "example-ts").resolve() / "node_modules")
        subprocess.run(["npm", "run", "--silent", "build"], cwd=copy, check=True, env=CHILD_ENVIRONMENT)
    else:
        (copy / ".venv").symlink_to((ENVIRONMENT / "example-python").resolve())
    return copy


def run_examples(tally: Tally, processes: list[Process], work: Path) -> None:
    for name in ("word-counter-ts", "word-counter-python"):
        run_example(tally, processes, name, prepare(name, work), work / f"{name}.log")


def run_example(tally: Tally, processes: list[Process], name: str, directory: Path, log: Path) -> None:
    (port,) = free_ports(1)
    here = f"127.0.0.1:{port}"
    config = directory / "gateway.yaml"
    assert ADDRESS in config.read_text()
    config.write_text(config.read_text().replace(ADDRESS, here))
    waypost = Process(f"waypost {name}", [WAYPOST, "serve"], log, cwd=directory)
    processes.append(waypost)
    waypost.wait_for_port(port)

    readme = (directory / "README.md").read_text().replace(ADDRESS, here)
    (command,) = [block for block in code_blocks(readme, "sh") if "curl" in block]
    (wanted,) = [json.loads(block) for block in code_blocks(readme, "json")]
    answer: Any = None

    def answered() -> bool:
        """The first answers may say that the upstream is still connecting."""
        nonlocal answer
        shell = ["bash", "-c", command]
        done = subprocess.run(shell, cwd=directory, capture_output=True, text=True, timeout=60, check=False)
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            answer = done.stdout + done.stderr
        return answer == wanted

    try:
        wait_until("the README's answer does not come", answered, 20)
        problem = None
    except TimeoutError:
        problem = f"expected {json.dumps(wanted)}\ngot      {json.dumps(answer)}\n{waypost.tail(5)}"
    tally.check(f"examples/{name}: the README's call gives the README's answer", problem)
    code = waypost.stop()
    tally.check(f"examples/{name}: stops cleanly", None if code == 0 else f"exit code {code}\n{waypost.tail(10)}")
    gone = not accepts(port)
    tally.check(f"examples/{name}: does not listen any more", None if gone else f"{here} still accepts")
