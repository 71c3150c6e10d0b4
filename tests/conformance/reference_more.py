"""Tools of the first reference server that the suite does not call, and the matrix of SDKs does.

What a tool asks it asks in the newest form, as all of them do; the server's own file puts it to older clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import mcp_types as types
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.subscriptions import ResourceUpdated

WATCHED = "test://watched-resource"
Result = types.CallToolResult | types.InputRequiredResult


def said(value: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=value)])


def model_choice(content: Any) -> str:
    """The tool that a model wants to use; its answer may be one block or several."""
    blocks = content if isinstance(content, list) else [content]
    return ", ".join(str(getattr(block, "name", block)) for block in blocks)


def register(tool: Callable[..., Any], bus: InMemorySubscriptionBus, is_modern: Callable[[Any], bool]) -> None:
    cancelled = 0

    def asking(request: Any, tell: Callable[[Any], str]) -> Callable[[Any, types.CallToolRequestParams], Any]:
        async def ask(ctx: Any, params: types.CallToolRequestParams) -> Result:
            answer = (params.input_responses or {}).get("answer")
            if answer is None:
                return types.InputRequiredResult(input_requests={"answer": request})
            return said(tell(answer))

        return ask

    page = types.ElicitRequestURLParams(
        message="Please sign in", url="https://example.com/sign-in?state=x", elicitation_id="sign-in"
    )
    tool("test_url_elicitation", "Asks the user to open a page")(
        asking(types.ElicitRequest(params=page), lambda answer: f"action={answer.action}")
    )
    weather = types.Tool(name="weather", description="Tells the weather", input_schema={"type": "object"})
    prompt = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="What is the weather?"))
    question = types.CreateMessageRequestParams(messages=[prompt], max_tokens=100, tools=[weather])
    tool("test_sampling_with_tools", "Asks the client's model, which may use a tool")(
        asking(
            types.CreateMessageRequest(params=question), lambda answer: f"The model uses {model_choice(answer.content)}"
        )
    )

    @tool("test_trigger_resource_update", "Says that the watched resource has changed")
    async def update(ctx: Any, params: types.CallToolRequestParams) -> Result:
        await bus.publish(ResourceUpdated(uri=WATCHED))
        if not is_modern(ctx):
            await ctx.session.send_resource_updated(WATCHED)
        return said("The resource has changed.")

    @tool("test_wait", "Waits until it is cancelled")
    async def wait(ctx: Any, params: types.CallToolRequestParams) -> Result:
        nonlocal cancelled
        try:
            await anyio.sleep(60)
        except anyio.get_cancelled_exc_class():
            cancelled += 1
            raise
        return said("Nobody wanted it to end.")

    @tool("test_cancellations", "Says how many calls were cancelled")
    async def cancellations(ctx: Any, params: types.CallToolRequestParams) -> Result:
        return said(str(cancelled))
