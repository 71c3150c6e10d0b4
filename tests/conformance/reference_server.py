"""The surface that the official conformance suite calls, on the official Python SDK, in both eras.

The suite calls fixed names; what each must do is written in the suite's own scenario descriptions.
Run as ``reference_server.py stdio`` or ``reference_server.py http PORT`` (endpoint ``/mcp`` on loopback).
"""

from __future__ import annotations

import base64
import json
import struct
import sys
import warnings
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import mcp_types as types
import reference_tasks
import uvicorn
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.subscriptions import PromptsListChanged, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

# The suite asks for sampling, roots and logging, which the newest revision deprecates.
warnings.simplefilter("ignore", MCPDeprecationWarning)

Result = types.CallToolResult | types.InputRequiredResult
Handler = Callable[[Any, types.CallToolRequestParams], Awaitable[Result]]

NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


def red_pixel_png() -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    png += chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00")) + chunk(b"IEND", b"")
    return base64.b64encode(png).decode()


def silent_wav() -> str:
    samples = b"\x80" * 8
    form = struct.pack("<HHIIHH", 1, 1, 8000, 8000, 1, 8)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(samples)) + samples
    return base64.b64encode(b"RIFF" + struct.pack("<I", len(body)) + body).decode()


PNG = red_pixel_png()
WAV = silent_wav()

TOOLS: dict[str, types.Tool] = {}
CALLS: dict[str, Handler] = {}
BUS = InMemorySubscriptionBus()
# What a "trigger change" tool adds and takes away again, so that a change of the list is a change.
EXTRA_TOOL = types.Tool(
    name="test_added_tool", description="Comes and goes with test_trigger_tool_change", input_schema=NO_ARGUMENTS
)
EXTRA_PROMPT = types.Prompt(name="test_added_prompt", description="Comes and goes with test_trigger_prompt_change")


def tool(name: str, description: str, schema: dict[str, Any] = NO_ARGUMENTS) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        TOOLS[name] = types.Tool(name=name, description=description, input_schema=schema)
        CALLS[name] = handler
        return handler

    return register


def text(value: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=value)])


def is_modern(ctx: Any) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def accepted(params: types.CallToolRequestParams | types.GetPromptRequestParams, key: str) -> dict[str, Any] | None:
    """The content of an accepted form, or nothing if that answer is not there."""
    answer = (params.input_responses or {}).get(key)
    if isinstance(answer, types.ElicitResult) and answer.action == "accept":
        return dict(answer.content or {})
    return None


def form(message: str, properties: dict[str, Any], required: list[str]) -> types.ElicitRequest:
    schema = {"type": "object", "properties": properties, "required": required}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(prompt: str, max_tokens: int) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=prompt))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


# Content


@tool("test_simple_text", "Returns one text block")
async def simple_text(ctx: Any, params: types.CallToolRequestParams) -> Result:
    return text("This is a simple text response for testing.")


@tool("test_image_content", "Returns one PNG image")
async def image_content(ctx: Any, params: types.CallToolRequestParams) -> Result:
    return types.CallToolResult(content=[types.ImageContent(type="image", data=PNG, mime_type="image/png")])


@tool("test_audio_content", "Returns one WAV sound")
async def audio_content(ctx: Any, params: types.CallToolRequestParams) -> Result:
    return types.CallToolResult(content=[types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")])


def embedded(uri: str, mime_type: str, body: str) -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type=mime_type, text=body)
    return types.EmbeddedResource(type="resource", resource=contents)


@tool("test_embedded_resource", "Returns one embedded resource")
async def embedded_resource(ctx: Any, params: types.CallToolRequestParams) -> Result:
    block = embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    return types.CallToolResult(content=[block])


@tool("test_multiple_content_types", "Returns text, an image and a resource")
async def multiple_content_types(ctx: Any, params: types.CallToolRequestParams) -> Result:
    return types.CallToolResult(
        content=[
            types.TextContent(type="text", text="Multiple content types test:"),
            types.ImageContent(type="image", data=PNG, mime_type="image/png"),
            embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ]
    )


@tool("test_error_handling", "Always reports an error of its own")
async def error_handling(ctx: Any, params: types.CallToolRequestParams) -> Result:
    block = types.TextContent(type="text", text="This tool intentionally returns an error for testing")
    return types.CallToolResult(content=[block], is_error=True)


# Events of a call


@tool("test_tool_with_logging", "Logs three times at info while it runs")
async def with_logging(ctx: Any, params: types.CallToolRequestParams) -> Result:
    steps = ["Tool execution started", "Tool processing data", "Tool execution completed"]
    for number, step in enumerate(steps):
        if number:
            await anyio.sleep(0.05)
        await ctx.session.send_log_message("info", step, related_request_id=ctx.request_id)
    return text("Logged three messages.")


@tool("test_logging_tool", "Logs once at info while it runs")
async def logging_tool(ctx: Any, params: types.CallToolRequestParams) -> Result:
    await ctx.session.send_log_message(
        "info", "A message that only who asked may see", related_request_id=ctx.request_id
    )
    return text("Logged one message.")


@tool("test_tool_with_progress", "Reports progress 0, 50 and 100 of 100")
async def with_progress(ctx: Any, params: types.CallToolRequestParams) -> Result:
    for number, progress in enumerate((0, 50, 100)):
        if number:
            await anyio.sleep(0.05)
        await ctx.session.report_progress(progress, 100)
    return text("Reported progress three times.")


@tool("test_reconnection", "Closes the stream of its call, and answers to a client that comes back")
async def reconnection(ctx: Any, params: types.CallToolRequestParams) -> Result:
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
    # Long enough for whoever is between the two to have begun a stream of its own.
    await anyio.sleep(1)
    return text("Reconnected.")


class Events(EventStore):
    """All events since the start: those of a test."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self.kept.append((stream_id, message))
        return str(len(self.kept))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id)
        stream = self.kept[last - 1][0]
        for number, (of, message) in enumerate(self.kept[last:], last + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


# Schemas and headers

JSON_SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@tool("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", JSON_SCHEMA_2020_12)
async def json_schema_tool(ctx: Any, params: types.CallToolRequestParams) -> Result:
    return text(json.dumps(params.arguments or {}))


@tool(
    "test_header_parameter",
    "Takes one argument that the HTTP transport mirrors in a header",
    {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
    },
)
async def header_parameter(ctx: Any, params: types.CallToolRequestParams) -> Result:
    return text(f"region {(params.arguments or {}).get('region')}")


# Questions to the client, all of them asked in the newest form; `call_tool` asks older clients in theirs


@tool(
    "test_sampling",
    "Asks the client's model",
    {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
)
async def sampling(ctx: Any, params: types.CallToolRequestParams) -> Result:
    answer = (params.input_responses or {}).get("answer")
    if not isinstance(answer, types.CreateMessageResult):
        prompt = str((params.arguments or {}).get("prompt", ""))
        return types.InputRequiredResult(input_requests={"answer": sample(prompt, 100)})
    return text(f"LLM response: {getattr(answer.content, 'text', answer.content)}")


async def elicited(params: types.CallToolRequestParams, request: types.ElicitRequest, label: str) -> Result:
    answer = (params.input_responses or {}).get("answer")
    if not isinstance(answer, types.ElicitResult):
        return types.InputRequiredResult(input_requests={"answer": request})
    return text(f"{label}: action={answer.action}, content={json.dumps(answer.content)}")


@tool(
    "test_elicitation",
    "Asks the user for a name and an address",
    {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
)
async def elicitation(ctx: Any, params: types.CallToolRequestParams) -> Result:
    properties = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    request = form(str((params.arguments or {}).get("message", "")), properties, ["username", "email"])
    return await elicited(params, request, "User response")


@tool("test_elicitation_sep1034_defaults", "Asks with a default for every primitive type")
async def elicitation_defaults(ctx: Any, params: types.CallToolRequestParams) -> Result:
    properties = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await elicited(params, form("Please review the defaults", properties, []), "Elicitation completed")


@tool("test_elicitation_sep1330_enums", "Asks with every kind of enumeration")
async def elicitation_enums(ctx: Any, params: types.CallToolRequestParams) -> Result:
    def titled(noun: str) -> list[dict[str, str]]:
        return [
            {"const": f"value{n}", "title": f"{word} {noun}"} for n, word in enumerate(("First", "Second", "Third"), 1)
        ]

    options = ["option1", "option2", "option3"]
    properties = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled("Option")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice")}},
    }
    return await elicited(params, form("Please choose", properties, []), "Elicitation completed")


@tool("test_missing_capability", "Needs a client with sampling and says so")
async def missing_capability(ctx: Any, params: types.CallToolRequestParams) -> Result:
    needed = types.ClientCapabilities(sampling=types.SamplingCapability())
    declared = ctx.session.client_capabilities
    if declared is None or declared.sampling is None:
        data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=needed)
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            "This tool needs a client with sampling",
            data.model_dump(by_alias=True, exclude_none=True),
        )
    return text("The client can sample.")


@tool("test_streaming_elicitation", "Reports progress, then asks")
async def streaming_elicitation(ctx: Any, params: types.CallToolRequestParams) -> Result:
    await ctx.session.report_progress(1, 2)
    return await elicited(params, form("Go on?", {"ok": {"type": "boolean"}}, ["ok"]), "Answer")


NAME_FORM = form("What is your name?", {"name": {"type": "string"}}, ["name"])


@tool("test_input_required_result_elicitation", "Needs the user's name")
async def ask_name(ctx: Any, params: types.CallToolRequestParams) -> Result:
    answer = accepted(params, "user_name")
    if answer is None or not isinstance(answer.get("name"), str):
        return types.InputRequiredResult(input_requests={"user_name": NAME_FORM})
    return text(f"Hello, {answer['name']}!")


@tool("test_input_required_result_sampling", "Needs an answer of the client's model")
async def ask_model(ctx: Any, params: types.CallToolRequestParams) -> Result:
    answer = (params.input_responses or {}).get("capital_question")
    if not isinstance(answer, types.CreateMessageResult):
        return types.InputRequiredResult(
            input_requests={"capital_question": sample("What is the capital of France?", 100)}
        )
    return text(f"The model said: {getattr(answer.content, 'text', '')}")


@tool("test_input_required_result_list_roots", "Needs the client's roots")
async def ask_roots(ctx: Any, params: types.CallToolRequestParams) -> Result:
    answer = (params.input_responses or {}).get("client_roots")
    if not isinstance(answer, types.ListRootsResult):
        return types.InputRequiredResult(input_requests={"client_roots": types.ListRootsRequest()})
    return text("Roots: " + ", ".join(str(root.uri) for root in answer.roots))


async def ask_confirmation(ctx: Any, params: types.CallToolRequestParams) -> Result:
    """The state comes back sealed by the server's boundary: what arrives here has been verified."""
    if accepted(params, "confirm") is None or params.request_state != "waiting-for-confirmation":
        request = form("Please confirm", {"ok": {"type": "boolean"}}, ["ok"])
        return types.InputRequiredResult(input_requests={"confirm": request}, request_state="waiting-for-confirmation")
    return text("state-ok")


tool("test_input_required_result_request_state", "Needs a confirmation, with state")(ask_confirmation)
tool("test_input_required_result_tampered_state", "Needs a confirmation, with state that is verified")(ask_confirmation)


@tool("test_input_required_result_multiple_inputs", "Needs three answers at once")
async def ask_three(ctx: Any, params: types.CallToolRequestParams) -> Result:
    answers = params.input_responses or {}
    if not {"user_name", "greeting", "client_roots"} <= answers.keys():
        return types.InputRequiredResult(
            input_requests={
                "user_name": NAME_FORM,
                "greeting": sample("Generate a greeting", 50),
                "client_roots": types.ListRootsRequest(),
            },
            request_state="three-questions",
        )
    return text(f"All {len(answers)} answers are there.")


@tool("test_input_required_result_multi_round", "Needs two answers, one after the other")
async def ask_twice(ctx: Any, params: types.CallToolRequestParams) -> Result:
    state = json.loads(params.request_state) if params.request_state else {}
    name, color = accepted(params, "step1"), accepted(params, "step2")
    if color is not None and "name" in state:
        return text(f"{state['name']} likes {color.get('color')}.")
    if name is not None:
        request = form("Step 2: What is your favorite color?", {"color": {"type": "string"}}, ["color"])
        state = {"round": 2, "name": name.get("name")}
        return types.InputRequiredResult(input_requests={"step2": request}, request_state=json.dumps(state))
    request = form("Step 1: What is your name?", {"name": {"type": "string"}}, ["name"])
    return types.InputRequiredResult(input_requests={"step1": request}, request_state=json.dumps({"round": 1}))


@tool("test_input_required_result_capabilities", "Asks only what the client can answer")
async def ask_what_is_possible(ctx: Any, params: types.CallToolRequestParams) -> Result:
    can = ctx.session.client_capabilities or types.ClientCapabilities()
    requests: dict[str, Any] = {}
    if can.elicitation is not None:
        requests["user_name"] = NAME_FORM
    if can.sampling is not None:
        requests["greeting"] = sample("Generate a greeting", 50)
    if can.roots is not None:
        requests["client_roots"] = types.ListRootsRequest()
    if not requests or params.input_responses:
        return text("Nothing to ask.")
    return types.InputRequiredResult(input_requests=requests)


# Changes of the lists


@tool("test_trigger_tool_change", "Adds a tool, or takes it away again")
async def trigger_tool_change(ctx: Any, params: types.CallToolRequestParams) -> Result:
    if TOOLS.pop(EXTRA_TOOL.name, None) is None:
        TOOLS[EXTRA_TOOL.name] = EXTRA_TOOL
    await BUS.publish(ToolsListChanged())
    if not is_modern(ctx):
        await ctx.session.send_tool_list_changed()
    return text("The list of tools has changed.")


@tool("test_trigger_prompt_change", "Adds a prompt, or takes it away again")
async def trigger_prompt_change(ctx: Any, params: types.CallToolRequestParams) -> Result:
    if PROMPTS.pop(EXTRA_PROMPT.name, None) is None:
        PROMPTS[EXTRA_PROMPT.name] = EXTRA_PROMPT
    await BUS.publish(PromptsListChanged())
    if not is_modern(ctx):
        await ctx.session.send_prompt_list_changed()
    return text("The list of prompts has changed.")


# Resources

RESOURCES = [
    types.Resource(uri="test://static-text", name="static-text", description="A text", mime_type="text/plain"),
    types.Resource(uri="test://static-binary", name="static-binary", description="A picture", mime_type="image/png"),
    types.Resource(
        uri="test://watched-resource", name="watched", description="To subscribe to", mime_type="text/plain"
    ),
]
TEMPLATES = [
    types.ResourceTemplate(
        uri_template="test://template/{id}/data", name="template", description="By id", mime_type="application/json"
    )
]


async def read_resource(ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = str(params.uri)
    contents: types.TextResourceContents | types.BlobResourceContents
    before, _, after = uri.removeprefix("test://template/").partition("/")
    if uri == "test://static-text":
        body = "This is the content of the static text resource."
        contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text=body)
    elif uri == "test://static-binary":
        contents = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
    elif uri == "test://watched-resource":
        contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text="Watched.")
    elif uri.startswith("test://template/") and before and after == "data":
        body = json.dumps({"id": before, "templateTest": True, "data": f"Data for ID: {before}"})
        contents = types.TextResourceContents(uri=uri, mime_type="application/json", text=body)
    else:
        code = types.INVALID_PARAMS if is_modern(ctx) else -32002
        raise MCPError(code, "Resource not found", {"uri": uri})
    return types.ReadResourceResult(contents=[contents])


# Prompts


def argument(name: str, description: str) -> types.PromptArgument:
    return types.PromptArgument(name=name, description=description, required=True)


PROMPTS: dict[str, types.Prompt] = {
    prompt.name: prompt
    for prompt in (
        types.Prompt(name="test_simple_prompt", description="One message"),
        types.Prompt(
            name="test_prompt_with_arguments",
            description="Repeats its arguments",
            arguments=[argument("arg1", "First test argument"), argument("arg2", "Second test argument")],
        ),
        types.Prompt(
            name="test_prompt_with_embedded_resource",
            description="Embeds a resource",
            arguments=[argument("resourceUri", "URI of the resource to embed")],
        ),
        types.Prompt(name="test_prompt_with_image", description="Holds an image"),
        types.Prompt(name="test_input_required_result_prompt", description="Needs an answer first"),
    )
}


def said(*blocks: Any) -> types.GetPromptResult:
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=block) for block in blocks])


def words(value: str) -> types.TextContent:
    return types.TextContent(type="text", text=value)


async def get_prompt(
    ctx: Any, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    given = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return said(words("This is a simple prompt for testing."))
        case "test_prompt_with_arguments":
            return said(words(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"))
        case "test_prompt_with_embedded_resource":
            block = embedded(given.get("resourceUri", ""), "text/plain", "Embedded resource content for testing.")
            return said(block, words("Please process the embedded resource above."))
        case "test_prompt_with_image":
            image = types.ImageContent(type="image", data=PNG, mime_type="image/png")
            return said(image, words("Please analyze the image above."))
        case "test_input_required_result_prompt":
            answer = accepted(params, "user_context")
            if answer is None:
                request = form("What context should the prompt use?", {"context": {"type": "string"}}, ["context"])
                return types.InputRequiredResult(input_requests={"user_context": request})
            return said(words(f"Context: {answer.get('context')}"))
        case name if name in PROMPTS:
            return said(words("Added."))
        case name:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {name}")


# The server


async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=list(TOOLS.values()))


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> Result:
    handler = CALLS.get(params.name)
    if handler is None:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
    result = await handler(ctx, params)
    rounds = 0
    while isinstance(result, types.InputRequiredResult) and not is_modern(ctx):
        rounds += 1
        if rounds > MOST_ROUNDS:
            raise MCPError(types.INTERNAL_ERROR, "The answers lead nowhere")
        answers = {key: await put(ctx, request) for key, request in (result.input_requests or {}).items()}
        update = {"input_responses": answers, "request_state": result.request_state}
        result = await handler(ctx, params.model_copy(update=update))
    return result


MOST_ROUNDS = 4
ANSWERS: dict[str, type[Any]] = {
    "elicitation/create": types.ElicitResult,
    "sampling/createMessage": types.CreateMessageResult,
    "roots/list": types.ListRootsResult,
}


async def put(ctx: Any, request: Any) -> Any:
    """Asks the client of an older revision while its call is running, on the stream of that call."""
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    return await ctx.session.send_request(request, ANSWERS[request.method], metadata=related)


async def list_resources(ctx: Any, params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=RESOURCES)


async def list_templates(ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(resource_templates=TEMPLATES)


async def list_prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=list(PROMPTS.values()))


async def complete(ctx: Any, params: types.CompleteRequestParams) -> types.CompleteResult:
    known = ["paris", "park", "party", "london"]
    values = [value for value in known if value.startswith(params.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))


async def accept(ctx: Any, params: Any) -> types.EmptyResult:
    """For subscriptions and log levels: nothing that the suite checks depends on what is stored."""
    return types.EmptyResult()


def build() -> Server[Any]:
    server: Server[Any] = Server(
        "conformance-reference",
        version="1.0.0",
        get_tool_input_schema=lambda name: TOOLS[name].input_schema if name in TOOLS else None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=accept,
        on_unsubscribe_resource=accept,
        on_subscriptions_listen=ListenHandler(BUS),
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_set_logging_level=accept,
    )
    reference_tasks.register(server, tool, lambda **properties: {"type": "object", "properties": properties})
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=server.name))
    return server


async def serve_stdio(server: Server[Any]) -> None:
    changes = NotificationOptions(prompts_changed=True, tools_changed=True)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options(changes))


def main() -> None:
    server = build()
    match sys.argv[1:]:
        case ["stdio"]:
            anyio.run(serve_stdio, server)
        case ["http", port]:
            app = server.streamable_http_app(event_store=Events(), retry_interval=100)
            uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
