"""The extension ``io.modelcontextprotocol/tasks`` of the reference server: its tools, and its three methods.

The SDK has hooks for extensions and no tasks of its own. What each tool must do is written in the suite's scenarios.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

EXTENSION = "io.modelcontextprotocol/tasks"
# Tasks live as long as a run of the suite may take.
TTL_MS = 300_000
# Who waits for the answer itself does not wait longer than so many seconds.
LONGEST = 1.0

Ask = Callable[[dict[str, dict[str, Any]]], Awaitable[dict[str, Any]]]
Work = Callable[[Ask, dict[str, Any]], Awaitable[dict[str, Any]]]


def now() -> str:
    return datetime.now(UTC).isoformat()


def said(value: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"resultType": "complete", "content": [{"type": "text", "text": value}], "isError": is_error}


def at_once(result: dict[str, Any]) -> types.CallToolResult:
    return types.CallToolResult.model_validate(result)


class Task:
    """One call on its way, or at its end."""

    def __init__(self, work: Work, arguments: dict[str, Any]) -> None:
        self.id = secrets.token_urlsafe(24)
        self.status = "working"
        self.created = self.updated = now()
        self.outcome: dict[str, Any] = {}
        self.requests: dict[str, dict[str, Any]] = {}
        self.answers: dict[str, Any] = {}
        self.answered = asyncio.Event()
        self.running = asyncio.ensure_future(self.run(work, arguments))

    async def run(self, work: Work, arguments: dict[str, Any]) -> None:
        try:
            self.end("completed", {"result": await work(self.ask, arguments)})
        except asyncio.CancelledError:
            self.end("cancelled", {})
        except MCPError as error:
            self.end("failed", {"error": {"code": error.error.code, "message": error.error.message}})

    def end(self, status: str, outcome: dict[str, Any]) -> None:
        self.status, self.outcome, self.updated = status, outcome, now()

    async def ask(self, requests: dict[str, dict[str, Any]]) -> dict[str, Any]:
        self.requests, self.status, self.updated = dict(requests), "input_required", now()
        while self.requests:
            self.answered.clear()
            await self.answered.wait()
        self.status, self.updated = "working", now()
        return self.answers

    def take(self, answers: dict[str, Any]) -> None:
        for key in self.requests.keys() & answers.keys():
            del self.requests[key]
            self.answers[key] = answers[key]
        self.updated = now()
        self.answered.set()

    def envelope(self) -> dict[str, Any]:
        return {
            "taskId": self.id,
            "status": self.status,
            "createdAt": self.created,
            "lastUpdatedAt": self.updated,
            "ttlMs": TTL_MS,
            "pollIntervalMs": 100,
        }

    def state(self) -> dict[str, Any]:
        asked = {"inputRequests": self.requests} if self.status == "input_required" else {}
        return {"resultType": "complete", **self.envelope(), **asked, **self.outcome}


TASKS: dict[str, Task] = {}


class Get(types.RequestParams):
    task_id: str


class Update(Get):
    input_responses: dict[str, Any]


def declared(ctx: Any) -> bool:
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and EXTENSION in (capabilities.extensions or {})


def missing() -> MCPError:
    needed = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    return MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", needed)


def found(ctx: Any, params: Get) -> Task:
    if not declared(ctx):
        raise missing()
    named = ctx.request.headers.get("mcp-name") if ctx.request is not None else params.task_id
    if named != params.task_id:
        raise MCPError(types.HEADER_MISMATCH, "Header mismatch: Mcp-Name is not the id of the task")
    task = TASKS.get(params.task_id)
    if task is None:
        raise MCPError(types.INVALID_PARAMS, "Failed to retrieve task: Task not found")
    return task


async def get(ctx: Any, params: Get) -> dict[str, Any]:
    return found(ctx, params).state()


async def update(ctx: Any, params: Update) -> dict[str, Any]:
    found(ctx, params).take(params.input_responses)
    return {"resultType": "complete"}


async def cancel(ctx: Any, params: Get) -> dict[str, Any]:
    found(ctx, params).running.cancel()
    return {"resultType": "complete"}


def begin(work: Work, arguments: dict[str, Any]) -> dict[str, Any]:
    task = Task(work, arguments)
    TASKS[task.id] = task
    return {**task.envelope(), "resultType": "task"}


def elicitation(message: str, **properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": message, "requestedSchema": schema},
    }


async def slow_compute(ask: Ask, arguments: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(float(arguments.get("seconds", 0)))
    return said(f"Computed {arguments.get('label', 'it')}.")


async def failing_job(ask: Ask, arguments: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(1)
    return said("The job failed.", is_error=True)


async def protocol_error_job(ask: Ask, arguments: dict[str, Any]) -> dict[str, Any]:
    raise MCPError(types.INTERNAL_ERROR, "The job broke")


async def confirm_delete(ask: Ask, arguments: dict[str, Any]) -> dict[str, Any]:
    question = elicitation(f"Delete {arguments.get('filename')}?", confirm={"type": "boolean"})
    answers = await ask({"confirm": question})
    return said(f"Answered: {answers['confirm'].get('action')}")


async def multi_input(ask: Ask, arguments: dict[str, Any]) -> dict[str, Any]:
    name = {"type": "string"}
    answers = await ask({key: elicitation(f"Name {key}?", name=name) for key in ("first", "second")})
    return said(f"Answered: {sorted(answers)}")


def register(server: Server[Any], tool: Any, schema: Callable[..., dict[str, Any]]) -> None:
    """Adds the extension to the server, and its tools by the decorator of the others."""
    server.extensions = {**server.extensions, EXTENSION: {}}
    for method, params, handler in (
        ("tasks/get", Get, get),
        ("tasks/update", Update, update),
        ("tasks/cancel", Get, cancel),
    ):
        server.add_request_handler(method, params, handler)

    @tool("greet", "Greets at once", schema(name={"type": "string"}))
    async def greet(ctx: Any, params: types.CallToolRequestParams) -> Any:
        return at_once(said(f"Hello, {(params.arguments or {}).get('name', 'you')}!"))

    @tool("slow_compute", "Takes its time", schema(seconds={"type": "number"}, label={"type": "string"}))
    async def slow(ctx: Any, params: types.CallToolRequestParams) -> Any:
        arguments = params.arguments or {}
        if declared(ctx):
            return begin(slow_compute, arguments)
        soon = {**arguments, "seconds": min(float(arguments.get("seconds", 0)), LONGEST)}
        return at_once(await slow_compute(never, soon))

    for name, work in (
        ("failing_job", failing_job),
        ("protocol_error_job", protocol_error_job),
        ("confirm_delete", confirm_delete),
        ("multi_input", multi_input),
    ):
        tool(name, "Runs as a task only", schema(filename={"type": "string"}))(only_as_task(work))

    @tool("test_tool_with_task", "Asks first, then runs as a task")
    async def with_task(ctx: Any, params: types.CallToolRequestParams) -> Any:
        if not declared(ctx):
            raise missing()
        answer = (params.input_responses or {}).get("user_name")
        if not isinstance(answer, types.ElicitResult):
            name = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
            form = types.ElicitRequestFormParams(message="Your name?", requested_schema=name)
            return types.InputRequiredResult(input_requests={"user_name": types.ElicitRequest(params=form)})

        async def greeting(ask: Ask, arguments: dict[str, Any]) -> dict[str, Any]:
            return said(f"Hello, {(answer.content or {}).get('name')}!")

        return begin(greeting, {})


def only_as_task(work: Work) -> Callable[[Any, types.CallToolRequestParams], Awaitable[Any]]:
    async def run(ctx: Any, params: types.CallToolRequestParams) -> Any:
        if not declared(ctx):
            raise missing()
        return begin(work, params.arguments or {})

    return run


async def never(requests: dict[str, dict[str, Any]]) -> dict[str, Any]:
    raise MCPError(types.INTERNAL_ERROR, "Nobody can be asked here")
