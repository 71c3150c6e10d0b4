"""The official Python SDK 2.x as a client of the matrix: legacy, or a revision to insist on."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
from matrix_plan import PATIENCE, Answers, carry_out, say
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp.shared.subscriptions import ResourceUpdated
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp import Client, MCPError

warnings.simplefilter("ignore", MCPDeprecationWarning)


class Peer(Answers):
    def __init__(self, nonce: str) -> None:
        super().__init__(types, nonce)
        self.heard: list[tuple[str, Any]] = []
        self.client: Client

    # What it tells

    async def on_message(self, message: Any) -> None:
        method = getattr(message, "method", None)
        if method is not None and method != "notifications/message":
            self.heard.append((method, str(getattr(message.params, "uri", ""))))

    async def on_log(self, params: Any) -> None:
        self.heard.append(("notifications/message", params.data))

    # What it is asked for

    async def call(self, tool: str, arguments: dict[str, Any], steps: list[Any] | None = None) -> dict[str, Any]:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if steps is not None:
                steps.append(progress)

        try:
            with anyio.fail_after(PATIENCE):
                result = await self.client.call_tool(
                    tool, arguments, progress_callback=on_progress if steps is not None else None
                )
        except MCPError as error:
            return {"error": {"code": error.error.code, "message": error.error.message}}
        except TimeoutError:
            return {"timeout": True}
        return {"text": getattr(result.content[0], "text", None), "isError": bool(result.is_error)}

    async def call_and_cancel(self, tool: str) -> bool:
        with anyio.move_on_after(0.5) as scope:
            await self.client.call_tool(tool, {})
        return scope.cancelled_caught

    async def tools(self) -> list[str]:
        found, cursor = [], None
        while True:
            page = await self.client.list_tools(cursor=cursor)
            found += [tool.name for tool in page.tools]
            cursor = page.next_cursor
            if not cursor:
                return found

    async def resources(self) -> list[str]:
        found, cursor = [], None
        while True:
            page = await self.client.list_resources(cursor=cursor)
            found += [str(one.uri) for one in page.resources]
            cursor = page.next_cursor
            if not cursor:
                return found

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        reference = types.PromptReference(type="ref/prompt", name=prompt)
        return (await self.client.complete(reference, {"name": argument, "value": value})).completion.values

    @contextlib.asynccontextmanager
    async def watching(self, uri: str) -> AsyncIterator[None]:
        if self.client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await self.client.subscribe_resource(uri)
            yield
            await self.client.unsubscribe_resource(uri)
            return
        async with self.client.listen(tools_list_changed=True, resource_subscriptions=[uri]) as stream:

            async def hear() -> None:
                async for event in stream:
                    if isinstance(event, ResourceUpdated):
                        self.heard.append(("notifications/resources/updated", event.uri))
                    else:
                        self.heard.append(("notifications/tools/list_changed", ""))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hear)
                yield
                tasks.cancel_scope.cancel()


async def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    peer = Peer(plan["nonce"])
    headers = {"Authorization": f"Bearer {plan['token']}"}
    able: dict[str, Any] = {}
    level: Any = "info" if plan["can_be_asked"] else None
    if plan["can_be_asked"]:
        tools = types.SamplingCapability(tools=types.SamplingToolsCapability())
        able = {"elicitation_callback": peer.elicit, "sampling_callback": peer.sample, "sampling_capabilities": tools}
        able["list_roots_callback"] = peer.roots
    async with httpx2.AsyncClient(headers=headers, timeout=90) as http:
        target = streamable_http_client(plan["url"], http_client=http)
        hearing: dict[str, Any] = {"message_handler": peer.on_message, "logging_callback": peer.on_log}
        async with Client(target, mode=plan["mode"], log_level=level, **hearing, **able) as peer.client:
            if peer.client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
                await peer.client.set_logging_level(level or "error")
            await carry_out(peer, plan)
    say(feature="close")


anyio.run(main)
