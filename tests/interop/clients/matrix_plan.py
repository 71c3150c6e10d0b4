"""What the Python clients of the matrix share: every feature at every server, once.

What came is printed as JSON lines; what it has to be, ``matrix.py`` knows. Knows nothing of an SDK's types but the
names that all versions share.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import anyio

WATCHED = "test://watched-resource"
PATIENCE = 20


def say(**record: Any) -> None:
    print(json.dumps(record), flush=True)


class Peer(Protocol):
    """One SDK's client."""

    # What notifications were heard: the method, and the text or the URI in it.
    heard: list[tuple[str, Any]]

    async def call(self, tool: str, arguments: dict[str, Any], steps: list[Any] | None = None) -> dict[str, Any]: ...
    async def call_and_cancel(self, tool: str) -> bool: ...
    async def tools(self) -> list[str]: ...
    async def resources(self) -> list[str]: ...
    async def complete(self, prompt: str, argument: str, value: str) -> list[str]: ...
    def watching(self, uri: str) -> Any: ...


async def until(reached: Callable[[], Awaitable[bool]], patience: float = PATIENCE) -> bool:
    with anyio.move_on_after(patience):
        while not await reached():
            await anyio.sleep(0.05)
        return True
    return False


class Answers:
    """What a client says when a server asks. ``types`` is the SDK's own module of them."""

    def __init__(self, types: Any, nonce: str) -> None:
        self.types = types
        self.nonce = nonce

    async def elicit(self, context: Any, params: Any) -> Any:
        if isinstance(params, self.types.ElicitRequestURLParams):
            say(feature="url asked", url=params.url)
            return self.types.ElicitResult(action="accept")
        action, _, name = params.message.partition(" ")
        content = {"username": name, "email": f"{name}@example.com"} if action == "accept" else None
        return self.types.ElicitResult.model_validate({"action": action, "content": content})

    async def sample(self, context: Any, params: Any) -> Any:
        answer: dict[str, Any] = {"role": "assistant", "model": "matrix"}
        if params.tools:
            answer["stopReason"] = "toolUse"
            answer["content"] = {"type": "tool_use", "id": "u1", "name": params.tools[0].name, "input": {}}
            return self.types.CreateMessageResultWithTools.model_validate(answer)
        content = params.messages[0].content
        asked = content[0] if isinstance(content, list) else content
        answer["content"] = {"type": "text", "text": f"model: {asked.text}"}
        return self.types.CreateMessageResult.model_validate(answer)

    async def roots(self, context: Any) -> Any:
        return self.types.ListRootsResult.model_validate({"roots": [{"uri": f"file:///matrix/{self.nonce}"}]})


async def carry_out(peer: Peer, plan: dict[str, Any]) -> None:
    listed = await peer.resources()
    for server in plan["servers"]:
        await at_server(peer, plan, server, listed)


async def at_server(peer: Peer, plan: dict[str, Any], server: str, listed: list[str]) -> None:
    nonce = plan["nonce"]

    def record(feature: str, got: Any) -> None:
        say(server=server, feature=feature, got=got)

    async def call(tool: str, steps: list[Any] | None = None, **arguments: Any) -> dict[str, Any]:
        return await peer.call(f"{server}__{tool}", arguments, steps)

    async def heard(method: str, what: Any = None) -> bool:
        return any(told == method and what in (None, detail) for told, detail in peer.heard)

    record("form accept", await call("test_elicitation", message=f"accept {nonce}"))
    record("sampling", await call("test_sampling", prompt=nonce))
    record("roots", await call("test_input_required_result_list_roots"))
    peer.heard.clear()
    logged = await call("test_tool_with_logging")
    record("log", {**logged, "heard": [text for told, text in peer.heard if told == "notifications/message"]})
    if not plan["can_be_asked"]:
        return
    record("form decline", await call("test_elicitation", message="decline"))
    record("form cancel", await call("test_elicitation", message="cancel"))
    record("url", await call("test_url_elicitation"))
    record("sampling with tools", await call("test_sampling_with_tools"))
    steps: list[Any] = []
    progressed = await call("test_tool_with_progress", steps)
    record("progress", {**progressed, "steps": steps})
    try:
        record("completion", {"values": await peer.complete(f"{server}__test_prompt_with_arguments", "arg1", "par")})
    except Exception as error:
        record("completion", {"error": repr(error)})

    async def count() -> int:
        return int((await call("test_cancellations")).get("text", -1))

    before = await count()
    ended = await peer.call_and_cancel(f"{server}__test_wait")

    async def one_more() -> bool:
        return await count() == before + 1

    record("cancellation", {"ended": ended, "cancelled": await until(one_more)})

    tagged = f"{WATCHED}#@{server}"
    uri = tagged if tagged in listed else WATCHED
    async with peer.watching(uri):
        peer.heard.clear()
        told = await call("test_trigger_resource_update")
        came = await until(lambda: heard("notifications/resources/updated", uri))
        record("resource update", {**told, "heard": came})
        seen = []
        patience = 1 if server in plan["without_list_change"] else PATIENCE
        # The tool comes and goes, and each time somebody says so after the list is the new one.
        for there in (True, False):
            peer.heard.clear()
            await call("test_trigger_tool_change")
            came = await until(lambda: heard("notifications/tools/list_changed"), patience)
            seen.append(came and (f"{server}__test_added_tool" in await peer.tools()) is there)
        record("list change", {"seen": seen})
