"""The official Python SDK 1.x as a client: carries out a plan, prints what it saw as JSON lines."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import httpx
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from mcp import ClientSession, McpError
from mcp.types import ErrorData


def say(**record: Any) -> None:
    print(json.dumps(record), flush=True)


def wire(model: Any) -> Any:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


async def call(session: ClientSession, step: str, wanted: dict[str, Any]) -> None:
    events: list[Any] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        events.append([progress, total, message])

    callback = on_progress if step == "progress" else None
    try:
        with anyio.fail_after(60):
            result = await session.call_tool(wanted["tool"], wanted["arguments"], progress_callback=callback)
        say(step=step, id=wanted["id"], result=wire(result), events=events)
    except McpError as error:
        say(step=step, id=wanted["id"], error={"code": error.error.code, "message": error.error.message})
    except Exception as error:
        say(step=step, id=wanted["id"], failure=repr(error))


async def carry_out(session: ClientSession, plan: dict[str, Any]) -> None:
    hello = await session.initialize()
    say(
        step="connect",
        protocol=hello.protocolVersion,
        server=wire(hello.serverInfo),
        capabilities=wire(hello.capabilities),
    )
    if plan["can_be_asked"]:
        # Some servers add tools when they have seen what the client can do.
        await anyio.sleep(1)
    await session.send_ping()
    say(step="ping")
    if hello.capabilities.logging is not None:
        await session.set_logging_level("info")
    tools: list[Any] = []
    cursor = None
    while True:
        page = await session.list_tools(cursor)
        tools += [wire(tool) for tool in page.tools]
        cursor = page.nextCursor
        if not cursor:
            break
    say(step="list", tools=tools)
    for step in ("call", "unknown", "large", "progress"):
        for wanted in plan[step]:
            await call(session, step, wanted)
    started = time.monotonic()
    async with anyio.create_task_group() as tasks:
        for wanted in plan["parallel"]:
            tasks.start_soon(call, session, "parallel", wanted)
    say(step="parallel-time", seconds=time.monotonic() - started)


async def decline(*_: Any) -> ErrorData:
    return ErrorData(code=-1, message="nobody is here to answer")


async def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())

    async def on_log(params: Any) -> None:
        say(step="log", data=params.data, level=params.level)

    headers = {"Authorization": f"Bearer {plan['token']}"} if plan["token"] else {}
    async with httpx.AsyncClient(headers=headers, timeout=90) as http:
        if plan.get("command"):
            command, *arguments = plan["command"]
            transport: Any = stdio_client(StdioServerParameters(command=command, args=arguments, env=plan["env"]))
        elif plan["url"].endswith("/sse"):
            transport = sse_client(plan["url"], headers=headers)
        else:
            transport = streamable_http_client(plan["url"], http_client=http)
        asked: dict[str, Any] = {f"{what}_callback": decline for what in ("list_roots", "sampling", "elicitation")}
        able = asked if plan["can_be_asked"] else {}
        async with transport as (read, write, *_):
            async with ClientSession(read, write, logging_callback=on_log, **able) as session:
                await carry_out(session, plan)
    say(step="close")


anyio.run(main)
