"""Experimental tasks by the official Python SDK 1.x as two clients: ``tasks_v1.py URL TOKEN OTHER_TOKEN``.

Prints one JSON object with everything that it saw.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import mcp.types as types
from mcp.client.streamable_http import streamable_http_client

from mcp import ClientSession, McpError

URL, OWN, OTHER = sys.argv[1:]
seen: dict[str, Any] = {"questions": []}


async def on_elicitation(context: Any, params: Any) -> types.ElicitResult:
    meta = params.model_dump(by_alias=True).get("_meta") or {}
    seen["questions"].append([params.message, (meta.get("io.modelcontextprotocol/related-task") or {}).get("taskId")])
    return types.ElicitResult(action="accept", content={"name": "Ada"})


@asynccontextmanager
async def session(token: str) -> AsyncIterator[ClientSession]:
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=30) as http:
        async with streamable_http_client(URL, http_client=http) as (read, write, _):
            async with ClientSession(read, write, elicitation_callback=on_elicitation) as one:
                hello = await one.initialize()
                seen["capability"] = (hello.capabilities.tasks or types.ServerTasksCapability()).model_dump(
                    by_alias=True, mode="json", exclude_none=True
                )
                yield one


def text(result: types.CallToolResult) -> Any:
    return [block.model_dump().get("text") for block in result.content]


async def refused(call: Any) -> Any:
    try:
        return {"answered": (await call).model_dump(by_alias=True, mode="json")}
    except McpError as error:
        return [error.error.code, error.error.message]


async def main() -> None:
    async with session(OWN) as own, session(OTHER) as other:
        tools = (await own.list_tools()).tools
        seen["support"] = {tool.name: tool.execution.taskSupport for tool in tools if tool.execution}
        made = (await own.experimental.call_tool_as_task("tasks__shout", {"text": "hello"})).task
        seen["id"] = made.taskId
        seen["states"] = [[state.taskId, state.status] async for state in own.experimental.poll_task(made.taskId)]
        result = await own.experimental.get_task_result(made.taskId, types.CallToolResult)
        seen["result"] = [text(result), (result.meta or {}).get("io.modelcontextprotocol/related-task")]

        asking = (await own.experimental.call_tool_as_task("tasks__greet", {})).task
        seen["asking"] = asking.taskId
        with anyio.fail_after(20):
            seen["answered"] = text(await own.experimental.get_task_result(asking.taskId, types.CallToolResult))

        endless = (await own.experimental.call_tool_as_task("tasks__forever", {})).task
        seen["stolen"] = [
            await refused(other.experimental.get_task(endless.taskId)),
            await refused(other.experimental.get_task_result(endless.taskId, types.CallToolResult)),
            await refused(other.experimental.cancel_task(endless.taskId)),
        ]
        seen["endless"] = endless.taskId
        seen["cancelled"] = (await own.experimental.cancel_task(endless.taskId)).status
        seen["after"] = (await own.experimental.get_task(endless.taskId)).status
        lists = [(await one.experimental.list_tasks()).tasks for one in (own, other)]
        seen["listed"] = [sorted(task.taskId for task in tasks) for tasks in lists]
    print(json.dumps(seen))


anyio.run(main)
