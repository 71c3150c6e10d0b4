"""The official Python SDK 2.x as a client: carries out a plan, prints what it saw as JSON lines."""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import ErrorData
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp import Client, MCPError, StdioServerParameters

warnings.simplefilter("ignore", MCPDeprecationWarning)


def say(**record: Any) -> None:
    print(json.dumps(record), flush=True)


def wire(model: Any) -> Any:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


async def call(client: Client, step: str, wanted: dict[str, Any]) -> None:
    events: list[Any] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        events.append([progress, total, message])

    callback = on_progress if step == "progress" else None
    try:
        with anyio.fail_after(60):
            result = await client.call_tool(wanted["tool"], wanted["arguments"], progress_callback=callback)
        say(step=step, id=wanted["id"], result=wire(result), events=events)
    except MCPError as error:
        say(step=step, id=wanted["id"], error={"code": error.error.code, "message": error.error.message})
    except Exception as error:
        say(step=step, id=wanted["id"], failure=repr(error))


async def carry_out(client: Client, plan: dict[str, Any]) -> None:
    server = client.server_info
    say(
        step="connect",
        protocol=client.protocol_version,
        server=wire(server) if server else None,
        capabilities=wire(client.server_capabilities),
    )
    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        await client.send_ping()
        say(step="ping")
        if client.server_capabilities.logging is not None:
            await client.set_logging_level("info")
    tools: list[Any] = []
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += [wire(tool) for tool in page.tools]
        cursor = page.next_cursor
        if not cursor:
            break
    say(step="list", tools=tools)
    for step in ("call", "unknown", "large", "progress"):
        for wanted in plan[step]:
            await call(client, step, wanted)
    started = time.monotonic()
    async with anyio.create_task_group() as tasks:
        for wanted in plan["parallel"]:
            tasks.start_soon(call, client, "parallel", wanted)
    say(step="parallel-time", seconds=time.monotonic() - started)


async def decline(*_: Any) -> ErrorData:
    return ErrorData(code=-1, message="nobody is here to answer")


async def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())

    async def on_log(params: Any) -> None:
        say(step="log", data=params.data, level=params.level)

    headers = {"Authorization": f"Bearer {plan['token']}"} if plan["token"] else {}
    async with httpx2.AsyncClient(headers=headers, timeout=90) as http:
        if plan.get("command"):
            command, *arguments = plan["command"]
            target: Any = StdioServerParameters(command=command, args=arguments, env=plan["env"])
        else:
            target = streamable_http_client(plan["url"], http_client=http)
        asked = {f"{what}_callback": decline for what in ("list_roots", "sampling", "elicitation")}
        able = asked if plan["can_be_asked"] else {}
        async with Client(target, mode=plan["mode"], log_level="info", logging_callback=on_log, **able) as client:
            if plan["can_be_asked"]:
                # Some servers add tools when they have seen what the client can do.
                await anyio.sleep(1)
            await carry_out(client, plan)
    say(step="close")


anyio.run(main)
