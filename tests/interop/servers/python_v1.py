"""A small server on the official Python SDK 1.x: legacy only, over stdio or Streamable HTTP.

``python_v1.py stdio`` or ``python_v1.py http PORT``.
"""

from __future__ import annotations

import sys
from importlib.metadata import version

import anyio
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult, TextContent
from pydantic import BaseModel

server = FastMCP("interop-python-v1", log_level="WARNING")


class Identity(BaseModel):
    sdk: str
    protocol: str


@server.tool(description="Says which SDK this is and which revision it is spoken to in")
def identify(ctx: Context) -> Identity:
    asked = ctx.session.client_params
    return Identity(sdk=f"python {version('mcp')}", protocol=str(asked.protocolVersion) if asked else "none")


@server.tool(description="Returns the text as it came", structured_output=False)
def echo(text: str) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structuredContent={"text": text},
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


def main() -> None:
    match sys.argv[1:]:
        case ["stdio"]:
            server.run("stdio")
        case ["http", port]:
            server.settings.port = int(port)
            server.run("streamable-http")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
