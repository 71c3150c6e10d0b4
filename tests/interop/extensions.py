"""Tasks and apps, by the official packages on both ends: each has its own idea of what the other must send."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from harness import (
    CHILD_ENVIRONMENT,
    ENVIRONMENT,
    NODE,
    PYTHON_V1,
    PYTHON_V2,
    ROOT,
    Process,
    Tally,
    Waypost,
    free_ports,
)

HERE = Path(__file__).resolve().parent
# Where the modules of the other runs are copied to: they find their packages beside them.
MODULES = ENVIRONMENT / "node" / "interop"
TOKENS = {"OWN_TOKEN": "own-" + "0" * 40, "OTHER_TOKEN": "other-" + "0" * 40}


def client(command: list[Any]) -> Any:
    """What a client printed; its complaint, if it has one."""
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=CHILD_ENVIRONMENT,
        cwd=HERE / "clients",
    )
    try:
        return json.loads(done.stdout)
    except ValueError:
        return f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"


def expect(tally: Tally, name: str, found: Any, wanted: Any) -> None:
    problem = None if found == wanted else f"expected {json.dumps(wanted)}\ngot      {json.dumps(found)}"
    tally.check(f"extensions: {name}", problem)


def run_extensions(tally: Tally, processes: list[Process], work: Path) -> None:
    ports = free_ports(4)
    reference = ROOT / "tests" / "conformance" / "reference_server.py"
    servers = HERE / "servers"
    commands = {
        "tasks": [PYTHON_V1, servers / "tasks_v1.py", ports[0]],
        "reference": [PYTHON_V2, reference, "http", ports[1]],
        "one": [NODE, MODULES / "servers" / "apps.mjs", ports[2], "one"],
        "two": [NODE, MODULES / "servers" / "apps.mjs", ports[3], "two"],
    }
    eras = {"tasks": "legacy", "reference": "modern", "one": "modern", "two": "legacy"}
    upstreams = {}
    for port, (name, command) in zip(ports, commands.items()):
        server = Process(name, command, work / f"extensions-{name}.log")
        processes.append(server)
        server.wait_for_port(port)
        upstreams[name] = {"url": f"http://127.0.0.1:{port}/mcp", "era": eras[name]}
    clients = {name: {"tokens": [{"env": variable}]} for name, variable in zip(("own", "other"), TOKENS)}
    waypost = Waypost("extensions", {"upstreams": upstreams, "clients": clients}, work, env=TOKENS)
    processes.append(waypost)
    waypost.wait_until_ready()
    own, other = TOKENS.values()
    run_tasks_v1(tally, client([PYTHON_V1, HERE / "clients" / "tasks_v1.py", waypost.url, own, other]))
    run_ext_tasks(tally, waypost.url, own)
    for era in ("legacy", "modern"):
        run_apps(tally, era, client([NODE, MODULES / "clients" / "apps.mjs", waypost.url, own, era]))
    waypost.stop()


def run_tasks_v1(tally: Tally, seen: Any) -> None:
    if not isinstance(seen, dict):
        tally.check("extensions: python 1.x tasks", seen)
        return
    told = "python 1.x tasks: {}"
    promised = {"cancel": {}, "list": {}, "requests": {"tools": {"call": {}}}}
    expect(tally, told.format("promised"), seen["capability"], promised)
    expect(tally, told.format("tools say that they may be tasks"), set(seen["support"].values()), {"optional"})
    task = seen["id"]
    states = [state[0] for state in seen["states"]]
    expect(tally, told.format("every state bears the id"), states, [task] * len(states))
    expect(tally, told.format("the task ends"), seen["states"][-1][1], "completed")
    expect(tally, told.format("its result is there, tied to it"), seen["result"], [["HELLO"], {"taskId": task}])
    expect(tally, told.format("a question comes, tied to it"), seen["questions"], [["Who are you?", seen["asking"]]])
    expect(tally, told.format("the answer arrives"), seen["answered"], ["accept: Ada"])
    unknown = [-32602, f"Unknown task: {seen['endless']}"]
    expect(tally, told.format("another client has no such task"), seen["stolen"], [unknown] * 3)
    expect(tally, told.format("cancelling ends it"), [seen["cancelled"], seen["after"]], ["cancelled"] * 2)
    own = sorted([task, seen["asking"], seen["endless"]])
    expect(tally, told.format("each client lists its own"), seen["listed"], [own, []])


def run_ext_tasks(tally: Tally, url: str, token: str) -> None:
    # Questions of a 2025-11-25 task are left to the Python client: these two peers do not manage them directly either.
    plans = {
        "legacy": [
            {"tool": "tasks__shout", "arguments": {"text": "hello"}},
            {"tool": "tasks__forever", "arguments": {}, "cancel": True},
        ],
        "modern": [
            {"tool": "reference__slow_compute", "arguments": {"seconds": 1, "label": "pi"}},
            {"tool": "reference__confirm_delete", "arguments": {"filename": "x"}},
            {"tool": "reference__slow_compute", "arguments": {"seconds": 60}, "cancel": True},
        ],
    }
    texts = {"legacy": ["HELLO"], "modern": ["Computed pi.", "Answered: accept"]}
    questions = {"legacy": [], "modern": ["Delete x?"]}
    for era, plan in plans.items():
        seen = client([NODE, MODULES / "clients" / "tasks.mjs", url, token, era, json.dumps(plan)])
        if not isinstance(seen, dict):
            tally.check(f"extensions: ext-tasks, {era}", seen)
            continue
        ended = [one.get("status") or one.get("failure") for one in seen["seen"]]
        ends = [*("completed" for _ in texts[era]), "cancelled"]
        expect(tally, f"ext-tasks, {era}: tasks end as they should", ended, ends)
        results = [one.get("result") or {} for one in seen["seen"]][: len(texts[era])]
        found = [(result.get("content") or [{}])[0].get("text") for result in results]
        expect(tally, f"ext-tasks, {era}: with their results", found, texts[era])
        expect(tally, f"ext-tasks, {era}: questions are asked", seen["questions"], questions[era])


def run_apps(tally: Tally, era: str, seen: Any) -> None:
    if not isinstance(seen, dict):
        tally.check(f"extensions: apps, {era} host", seen)
        return
    expect(tally, f"apps, {era} host: promised", seen["promised"], {})
    view = "ui://clock/view.html"
    for name, uri in (("one", view), ("two", f"{view}#@two")):
        ui = {"csp": {"connectDomains": ["https://clock.example"]}, "prefersBorder": True}
        contents = {
            "uri": uri,
            "mimeType": "text/html;profile=mcp-app",
            "text": f"<html>{name}</html>",
            "_meta": {"ui": ui},
        }
        same = {"uri": uri, "legacy": uri, "contents": contents}
        wanted = [
            {"name": f"{name}__{tool}", **same, "appOnly": only, "said": f"{name} {said}"}
            for tool, only, said in (("show", False, "shows"), ("tick", True, "ticks"))
        ]
        found = [tool for tool in seen["tools"] if tool["name"].startswith(f"{name}__")]
        expect(tally, f"apps, {era} host: the interface of {name} is its own", found, wanted)
