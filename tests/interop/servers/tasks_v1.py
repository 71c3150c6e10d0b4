"""Experimental tasks of 2025-11-25 on the official Python SDK 1.x, over Streamable HTTP: ``tasks_v1.py PORT``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio
import uvicorn
from mcp.server import Server
from mcp.server.experimental.task_context import ServerTaskContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import TASK_OPTIONAL, CallToolResult, CreateTaskResult, TextContent, Tool, ToolExecution
from starlette.applications import Starlette
from starlette.routing import Mount

server: Server[Any, Any] = Server("interop-tasks-v1")
server.experimental.enable_tasks()

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def said(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)])


@server.list_tools()
async def list_tools() -> list[Tool]:
    def tool(name: str) -> Tool:
        execution = ToolExecution(taskSupport=TASK_OPTIONAL)
        return Tool(name=name, description="Runs as a task", inputSchema={"type": "object"}, execution=execution)

    return [tool("shout"), tool("greet"), tool("forever")]


@server.call_tool()
async def call_tool(name: str, arguments: dict[str, Any]) -> CallToolResult | CreateTaskResult:
    experimental = server.request_context.experimental
    text = str(arguments.get("text", "")).upper()

    async def work(task: ServerTaskContext) -> CallToolResult:
        match name:
            case "greet":
                answer = await task.elicit("Who are you?", FORM)
                return said(f"{answer.action}: {(answer.content or {}).get('name')}")
            case "forever":
                await anyio.sleep_forever()
        await task.update_status("at work")
        return said(text)

    return await experimental.run_task(work) if experimental.is_task else said(text)


def main() -> None:
    manager = StreamableHTTPSessionManager(server)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    app = Starlette(routes=[Mount("/mcp", app=manager.handle_request)], lifespan=lifespan)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")


main()
