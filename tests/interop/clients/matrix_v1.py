"""The official Python SDK 1.x as a client of the matrix: legacy only."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx
from matrix_plan import PATIENCE, Answers, carry_out, say
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl

from mcp import ClientSession, McpError, types


class Peer(Answers):
    def __init__(self, nonce: str) -> None:
        super().__init__(types, nonce)
        self.heard: list[tuple[str, Any]] = []
        self.session: ClientSession

    # What it tells

    async def on_message(self, message: Any) -> None:
        # Log messages come to `on_log` as well.
        if isinstance(message, types.ServerNotification) and message.root.method != "notifications/message":
            params = message.root.params
            self.heard.append((message.root.method, str(getattr(params, "uri", ""))))

    async def on_log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.heard.append(("notifications/message", params.data))

    # What it is asked for

    async def call(self, tool: str, arguments: dict[str, Any], steps: list[Any] | None = None) -> dict[str, Any]:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if steps is not None:
                steps.append(progress)

        try:
            with anyio.fail_after(PATIENCE):
                result = await self.session.call_tool(
                    tool, arguments, progress_callback=on_progress if steps is not None else None
                )
        except McpError as error:
            return {"error": {"code": error.error.code, "message": error.error.message}}
        except TimeoutError:
            return {"timeout": True}
        return {"text": getattr(result.content[0], "text", None), "isError": result.isError}

    async def call_and_cancel(self, tool: str) -> bool:
        ended = []
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                ended.append(await self.call(tool, {}))

            request = self.session._request_id
            tasks.start_soon(wait)
            await anyio.sleep(0.3)
            # This SDK has no way of its own to cancel a request.
            params = types.CancelledNotificationParams(requestId=request, reason="enough")
            await self.session.send_notification(
                types.ClientNotification(types.CancelledNotification(params=params))
            )
            await anyio.sleep(0.3)
            tasks.cancel_scope.cancel()
        return True

    async def tools(self) -> list[str]:
        found, cursor = [], None
        while True:
            page = await self.session.list_tools(cursor)
            found += [tool.name for tool in page.tools]
            cursor = page.nextCursor
            if not cursor:
                return found

    async def resources(self) -> list[str]:
        found, cursor = [], None
        while True:
            page = await self.session.list_resources(cursor)
            found += [str(one.uri) for one in page.resources]
            cursor = page.nextCursor
            if not cursor:
                return found

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        reference = types.PromptReference(type="ref/prompt", name=prompt)
        return (await self.session.complete(reference, {"name": argument, "value": value})).completion.values

    @contextlib.asynccontextmanager
    async def watching(self, uri: str) -> AsyncIterator[None]:
        await self.session.subscribe_resource(AnyUrl(uri))
        yield
        await self.session.unsubscribe_resource(AnyUrl(uri))


async def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    peer = Peer(plan["nonce"])
    headers = {"Authorization": f"Bearer {plan['token']}"}
    able: dict[str, Any] = {}
    if plan["can_be_asked"]:
        tools = types.SamplingCapability(tools=types.SamplingToolsCapability())
        able = {"elicitation_callback": peer.elicit, "sampling_callback": peer.sample, "sampling_capabilities": tools}
        able["list_roots_callback"] = peer.roots
    async with httpx.AsyncClient(headers=headers, timeout=90) as http:
        async with streamable_http_client(plan["url"], http_client=http) as (read, write, *_):
            hearing: dict[str, Any] = {"message_handler": peer.on_message, "logging_callback": peer.on_log}
            async with ClientSession(read, write, **hearing, **able) as peer.session:
                await peer.session.initialize()
                await peer.session.set_logging_level("info" if plan["can_be_asked"] else "error")
                await carry_out(peer, plan)
    say(feature="close")


anyio.run(main)
