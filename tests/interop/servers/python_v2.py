"""A small server on the official Python SDK 2.x: both eras, over stdio or Streamable HTTP.

``python_v2.py stdio`` or ``python_v2.py http PORT [TOKEN]``; with a token, every request must bear it.
"""

from __future__ import annotations

import hmac
import sys
import warnings
from importlib.metadata import version
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

warnings.simplefilter("ignore", MCPDeprecationWarning)

server = MCPServer("interop-python-v2", version="1.0.0", instructions="Say echo.")


class Identity(BaseModel):
    sdk: str
    protocol: str


@server.tool(description="Says which SDK this is and which revision it is spoken to in")
def identify(ctx: Context) -> Identity:
    return Identity(sdk=f"python {version('mcp')}", protocol=str(ctx.protocol_version))


@server.tool(description="Returns the text as it came", structured_output=False)
def echo(text: str) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content={"text": text},
        _meta={"example.com/length": len(text)},
    )


@server.tool(description="Returns the text after a while", structured_output=False)
async def slow_echo(text: str, delay_ms: int) -> str:
    await anyio.sleep(delay_ms / 1000)
    return text


@server.tool(description="Counts, reports its progress and logs each step", structured_output=False)
async def count(to: int, label: str, ctx: Context) -> str:
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"at {number}")
        await ctx.info(f"{label} step {number}")
        await anyio.sleep(0.05)
    return f"counted to {to}"


@server.tool(description="Fails in the way a tool fails", structured_output=False)
def fail(message: str) -> str:
    raise ToolError(message)


@server.tool(description="Lists the HTTP headers of this request that could carry a credential")
def credentials(ctx: Context) -> dict[str, str]:
    wanted = ("authorization", "cookie", "x-forwarded-for", "x-api-key")
    return {name: value for name, value in (ctx.headers or {}).items() if name.lower() in wanted}


def demand_bearer(app: ASGIApp, token: str) -> ASGIApp:
    expected = f"Bearer {token}".encode()

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given: bytes = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, expected):
                refusal: Any = JSONResponse({"error": "unauthorized"}, 401, {"WWW-Authenticate": "Bearer"})
                await refusal(scope, receive, send)
                return
        await app(scope, receive, send)

    return guarded


def main() -> None:
    match sys.argv[1:]:
        case ["stdio"]:
            server.run("stdio")
        case ["http", port, *token]:
            app: ASGIApp = server.streamable_http_app()
            if token:
                app = demand_bearer(app, token[0])
            uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
