"""The word counter of the MCP tutorials, on the official Python SDK."""

from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

server = MCPServer("word-counter", version="1.0.0")


class Counts(BaseModel):
    words: int = Field(description="Runs of characters that are not white space")
    characters: int = Field(description="Unicode code points, white space included")
    lines: int = Field(description="Lines; a line break at the end does not open another one")


@server.tool(
    title="Count words",
    description="Counts the words, characters and lines of a text",
    annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
)
def count_words(text: Annotated[str, Field(description="The text to count")]) -> Counts:
    return Counts(words=len(text.split()), characters=len(text), lines=len(text.splitlines()))


if __name__ == "__main__":
    # Both eras of the protocol: the client's first message decides.
    server.run("stdio")
