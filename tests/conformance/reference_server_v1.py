"""The surface that the official conformance suite calls, on the official Python SDK 1.x, which is legacy only.

Run as ``reference_server_v1.py stdio`` or ``reference_server_v1.py http PORT`` (endpoint ``/mcp`` on loopback). What it
lists is in the file that ``SURFACE`` names; it has the tools, and knows the questions, of the revisions it speaks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp import types
from mcp.server.fastmcp.server import StreamableHTTPASGIApp
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import McpError
from mcp.shared.message import ServerMessageMetadata
from pydantic import AnyUrl
from starlette.applications import Starlette
from starlette.routing import Route

SURFACE = json.loads(Path(os.environ["SURFACE"]).read_text())
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
WAV = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA=="

Tool = Callable[[dict[str, Any]], Awaitable[types.CallToolResult]]
server: Server[Any, Any] = Server("conformance-reference-python-1", version="1.0.0")
TOOLS: dict[str, Tool] = {}


def tool(name: str) -> Callable[[Tool], Tool]:
    def register(act: Tool) -> Tool:
        TOOLS[name] = act
        return act

    return register


def words(value: str) -> types.TextContent:
    return types.TextContent(type="text", text=value)


def result(*blocks: Any, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=list(blocks), isError=is_error)


def embedded(uri: str, mime_type: str, body: str) -> types.EmbeddedResource:
    resource = types.TextResourceContents.model_validate({"uri": uri, "mimeType": mime_type, "text": body})
    return types.EmbeddedResource(type="resource", resource=resource)


IMAGE = types.ImageContent(type="image", data=PNG, mimeType="image/png")


@tool("test_simple_text")
async def simple_text(given: dict[str, Any]) -> types.CallToolResult:
    return result(words("This is a simple text response for testing."))


@tool("test_image_content")
async def image_content(given: dict[str, Any]) -> types.CallToolResult:
    return result(IMAGE)


@tool("test_audio_content")
async def audio_content(given: dict[str, Any]) -> types.CallToolResult:
    return result(types.AudioContent(type="audio", data=WAV, mimeType="audio/wav"))


@tool("test_embedded_resource")
async def embedded_resource(given: dict[str, Any]) -> types.CallToolResult:
    return result(embedded("test://embedded-resource", "text/plain", "This is an embedded resource content."))


@tool("test_multiple_content_types")
async def multiple_content_types(given: dict[str, Any]) -> types.CallToolResult:
    mixed = embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    return result(words("Multiple content types test:"), IMAGE, mixed)


@tool("test_error_handling")
async def error_handling(given: dict[str, Any]) -> types.CallToolResult:
    return result(words("This tool intentionally returns an error for testing"), is_error=True)


@tool("json_schema_2020_12_tool")
async def json_schema(given: dict[str, Any]) -> types.CallToolResult:
    return result(words(json.dumps(given)))


@tool("test_header_parameter")
async def header_parameter(given: dict[str, Any]) -> types.CallToolResult:
    return result(words(f"region {given.get('region')}"))


async def log(*steps: str) -> types.CallToolResult:
    ctx = server.request_context
    for step in steps:
        await ctx.session.send_log_message("info", step, related_request_id=ctx.request_id)
        await anyio.sleep(0.05)
    return result(words(f"Logged {len(steps)} times."))


@tool("test_tool_with_logging")
async def with_logging(given: dict[str, Any]) -> types.CallToolResult:
    return await log("Tool execution started", "Tool processing data", "Tool execution completed")


@tool("test_logging_tool")
async def logging_tool(given: dict[str, Any]) -> types.CallToolResult:
    return await log("A message that only who asked may see")


async def progress(*steps: float) -> None:
    ctx = server.request_context
    token = ctx.meta.progressToken if ctx.meta else None
    for step in steps if token is not None else ():
        await ctx.session.send_progress_notification(token, step, 100, related_request_id=str(ctx.request_id))
        await anyio.sleep(0.05)


@tool("test_tool_with_progress")
async def with_progress(given: dict[str, Any]) -> types.CallToolResult:
    await progress(0, 50, 100)
    return result(words("Reported progress three times."))


# Questions, on the stream of the call that needs the answer


async def elicit(message: str, properties: dict[str, Any], required: list[str]) -> types.ElicitResult:
    ctx = server.request_context
    schema = {"type": "object", "properties": properties, "required": required}
    return await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)


async def sample(prompt: str, max_tokens: int) -> str:
    ctx = server.request_context
    message = types.SamplingMessage(role="user", content=words(prompt))
    answer = await ctx.session.create_message([message], max_tokens=max_tokens, related_request_id=ctx.request_id)
    return str(getattr(answer.content, "text", answer.content))


async def roots() -> list[str]:
    # The session's own `list_roots` cannot say which call it is for.
    ctx = server.request_context
    request = types.ServerRequest(types.ListRootsRequest())
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    answer = await ctx.session.send_request(request, types.ListRootsResult, metadata=related)
    return [str(root.uri) for root in answer.roots]


def answered(label: str, answer: types.ElicitResult) -> types.CallToolResult:
    return result(words(f"{label}: action={answer.action}, content={json.dumps(answer.content)}"))


@tool("test_sampling")
async def sampling(given: dict[str, Any]) -> types.CallToolResult:
    return result(words(f"LLM response: {await sample(given['prompt'], 100)}"))


@tool("test_elicitation")
async def elicitation(given: dict[str, Any]) -> types.CallToolResult:
    username = {"type": "string", "description": "User's response"}
    email = {"type": "string", "description": "User's email address"}
    properties = {"username": username, "email": email}
    return answered("User response", await elicit(given["message"], properties, ["username", "email"]))


@tool("test_elicitation_sep1034_defaults")
async def elicitation_defaults(given: dict[str, Any]) -> types.CallToolResult:
    properties = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return answered("Elicitation completed", await elicit("Please review the defaults", properties, []))


@tool("test_elicitation_sep1330_enums")
async def elicitation_enums(given: dict[str, Any]) -> types.CallToolResult:
    def titled(noun: str) -> list[dict[str, str]]:
        return [{"const": f"value{n}", "title": f"{n}. {noun}"} for n in (1, 2, 3)]

    options = ["option1", "option2", "option3"]
    legacy = {"enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]}
    properties = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled("Option")},
        "legacyEnum": {"type": "string", **legacy},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice")}},
    }
    return answered("Elicitation completed", await elicit("Please choose", properties, []))


@tool("test_streaming_elicitation")
async def streaming_elicitation(given: dict[str, Any]) -> types.CallToolResult:
    await progress(50)
    return answered("Answer", await elicit("Go on?", {"ok": {"type": "boolean"}}, ["ok"]))


@tool("test_input_required_result_elicitation")
async def ask_name(given: dict[str, Any]) -> types.CallToolResult:
    answer = await elicit("What is your name?", {"name": {"type": "string"}}, ["name"])
    return result(words(f"Hello, {(answer.content or {}).get('name')}!"))


@tool("test_input_required_result_sampling")
async def ask_model(given: dict[str, Any]) -> types.CallToolResult:
    return result(words(f"The model said: {await sample('What is the capital of France?', 100)}"))


@tool("test_input_required_result_list_roots")
async def ask_roots(given: dict[str, Any]) -> types.CallToolResult:
    return result(words(f"Roots: {', '.join(await roots())}"))


@tool("test_input_required_result_multiple_inputs")
async def ask_three(given: dict[str, Any]) -> types.CallToolResult:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(elicit, "What is your name?", {"name": {"type": "string"}}, ["name"])
        tasks.start_soon(sample, "Generate a greeting", 50)
        tasks.start_soon(roots)
    return result(words("All answers are there."))


@tool("test_missing_capability")
async def missing_capability(given: dict[str, Any]) -> types.CallToolResult:
    needed = types.ClientCapabilities(sampling=types.SamplingCapability())
    if not server.request_context.session.check_client_capability(needed):
        raise wrong("This tool needs a client with sampling", -32021, {"requiredCapabilities": {"sampling": {}}})
    return result(words("The client can sample."))


async def confirm(given: dict[str, Any]) -> types.CallToolResult:
    while (await elicit("Please confirm", {"ok": {"type": "boolean"}}, ["ok"])).action != "accept":
        pass
    return result(words("state-ok"))


tool("test_input_required_result_request_state")(confirm)
tool("test_input_required_result_tampered_state")(confirm)


@tool("test_input_required_result_multi_round")
async def ask_twice(given: dict[str, Any]) -> types.CallToolResult:
    name = await elicit("Step 1: What is your name?", {"name": {"type": "string"}}, ["name"])
    color = await elicit("Step 2: What is your favorite color?", {"color": {"type": "string"}}, ["color"])
    return result(words(f"{name.content} likes {color.content}."))


def toggle(listed: list[dict[str, Any]], one: dict[str, Any]) -> None:
    if one in listed:
        listed.remove(one)
    else:
        listed.append(one)


@tool("test_trigger_tool_change")
async def trigger_tool_change(given: dict[str, Any]) -> types.CallToolResult:
    toggle(SURFACE["tools"], SURFACE["added"][0])
    await server.request_context.session.send_tool_list_changed()
    return result(words("The list of tools has changed."))


@tool("test_trigger_prompt_change")
async def trigger_prompt_change(given: dict[str, Any]) -> types.CallToolResult:
    toggle(SURFACE["prompts"], SURFACE["added"][1])
    await server.request_context.session.send_prompt_list_changed()
    return result(words("The list of prompts has changed."))


# What the suite does not call, and the matrix of SDKs does


@tool("test_url_elicitation")
async def url_elicitation(given: dict[str, Any]) -> types.CallToolResult:
    ctx = server.request_context
    page = "https://example.com/sign-in?state=x"
    answer = await ctx.session.elicit_url("Please sign in", page, "sign-in", related_request_id=ctx.request_id)
    return result(words(f"action={answer.action}"))


@tool("test_sampling_with_tools")
async def sampling_with_tools(given: dict[str, Any]) -> types.CallToolResult:
    ctx = server.request_context
    weather = types.Tool(name="weather", description="Tells the weather", inputSchema={"type": "object"})
    message = types.SamplingMessage(role="user", content=words("What is the weather?"))
    answer = await ctx.session.create_message(
        [message], max_tokens=100, tools=[weather], related_request_id=ctx.request_id
    )
    blocks = answer.content if isinstance(answer.content, list) else [answer.content]
    return result(words(f"The model uses {', '.join(str(getattr(block, 'name', block)) for block in blocks)}"))


@tool("test_trigger_resource_update")
async def trigger_resource_update(given: dict[str, Any]) -> types.CallToolResult:
    await server.request_context.session.send_resource_updated(AnyUrl("test://watched-resource"))
    return result(words("The resource has changed."))


CANCELLED: list[Any] = []


@tool("test_wait")
async def wait(given: dict[str, Any]) -> types.CallToolResult:
    try:
        await anyio.sleep(60)
    except anyio.get_cancelled_exc_class():
        CANCELLED.append(server.request_context.request_id)
        raise
    return result(words("Nobody wanted it to end."))


@tool("test_cancellations")
async def cancellations(given: dict[str, Any]) -> types.CallToolResult:
    return result(words(str(len(CANCELLED))))


# The methods


def wrong(message: str, code: int = types.INVALID_PARAMS, data: Any = None) -> McpError:
    return McpError(types.ErrorData(code=code, message=message, data=data))


async def call_tool(request: types.CallToolRequest) -> types.ServerResult:
    act = TOOLS.get(request.params.name)
    if act is None:
        raise wrong(f"Unknown tool: {request.params.name}")
    return types.ServerResult(await act(request.params.arguments or {}))


async def read_resource(request: types.ReadResourceRequest) -> types.ServerResult:
    uri = str(request.params.uri)
    before, _, after = uri.removeprefix("test://template/").partition("/")
    contents: dict[str, Any] = {"uri": uri, "mimeType": "text/plain"}
    if uri == "test://static-text":
        contents["text"] = "This is the content of the static text resource."
    elif uri == "test://static-binary":
        contents |= {"mimeType": "image/png", "blob": PNG}
    elif uri == "test://watched-resource":
        contents["text"] = "Watched."
    elif uri.startswith("test://template/") and before and after == "data":
        body = json.dumps({"id": before, "templateTest": True, "data": f"Data for ID: {before}"})
        contents |= {"mimeType": "application/json", "text": body}
    else:
        raise wrong("Resource not found", -32002, {"uri": uri})
    return types.ServerResult(types.ReadResourceResult.model_validate({"contents": [contents]}))


async def get_prompt(request: types.GetPromptRequest) -> types.ServerResult:
    given = request.params.arguments or {}
    match request.params.name:
        case "test_simple_prompt":
            blocks: list[Any] = [words("This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            blocks = [words(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")]
        case "test_prompt_with_embedded_resource":
            block = embedded(given.get("resourceUri", ""), "text/plain", "Embedded resource content for testing.")
            blocks = [block, words("Please process the embedded resource above.")]
        case "test_prompt_with_image":
            blocks = [IMAGE, words("Please analyze the image above.")]
        case "test_input_required_result_prompt":
            answer = await elicit("What context should it use?", {"context": {"type": "string"}}, ["context"])
            blocks = [words(f"Context: {(answer.content or {}).get('context')}")]
        case name:
            raise wrong(f"Unknown prompt: {name}")
    messages = [types.PromptMessage(role="user", content=block) for block in blocks]
    return types.ServerResult(types.GetPromptResult(messages=messages))


async def complete(request: types.CompleteRequest) -> types.ServerResult:
    known = ["paris", "park", "party", "london"]
    values = [value for value in known if value.startswith(request.params.argument.value)]
    completion = types.Completion(values=values, total=len(values), hasMore=False)
    return types.ServerResult(types.CompleteResult(completion=completion))


async def accept(request: Any) -> types.ServerResult:
    """For subscriptions and log levels: nothing that the suite checks depends on what is stored."""
    return types.ServerResult(types.EmptyResult())


def listing(kind: type[Any], key: str) -> Callable[[Any], Awaitable[types.ServerResult]]:
    async def answer(request: Any) -> types.ServerResult:
        # A tool that this SDK's revisions know no question for is not there.
        entries = [one for one in SURFACE[key] if key != "tools" or one["name"] in TOOLS or one in SURFACE["added"]]
        return types.ServerResult(kind.model_validate({key: entries}))

    return answer


def register() -> None:
    # Typed by the decorators, each of which would do more than hand the request over.
    server.request_handlers |= {
        types.ListToolsRequest: listing(types.ListToolsResult, "tools"),
        types.CallToolRequest: call_tool,
        types.ListResourcesRequest: listing(types.ListResourcesResult, "resources"),
        types.ListResourceTemplatesRequest: listing(types.ListResourceTemplatesResult, "resourceTemplates"),
        types.ReadResourceRequest: read_resource,
        types.SubscribeRequest: accept,
        types.UnsubscribeRequest: accept,
        types.ListPromptsRequest: listing(types.ListPromptsResult, "prompts"),
        types.GetPromptRequest: get_prompt,
        types.CompleteRequest: complete,
        types.SetLevelRequest: accept,
    }
    original = server.create_initialization_options

    def options(*_: Any, **__: Any) -> InitializationOptions:
        # The transports ask without saying that lists change, and the SDK says of no server that it has subscriptions.
        given = original(NotificationOptions(prompts_changed=True, tools_changed=True))
        if given.capabilities.resources is not None:
            given.capabilities.resources.subscribe = True
        return given

    server.create_initialization_options = options  # type: ignore[method-assign]


async def serve_stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def serve_http(port: int) -> None:
    hosts = [f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]")]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True, allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts]
    )
    manager = StreamableHTTPSessionManager(server, security_settings=security)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    app = Starlette(routes=[Route("/mcp", StreamableHTTPASGIApp(manager))], lifespan=lifespan)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


def main() -> None:
    register()
    match sys.argv[1:]:
        case ["stdio"]:
            anyio.run(serve_stdio)
        case ["http", port]:
            serve_http(int(port))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
