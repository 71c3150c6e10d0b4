"""The official Python SDK 2.x as a client that has no token: it finds the authorization server by itself."""

from __future__ import annotations

import json
import sys
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from mcp import Client

URL, TOOL, ARGUMENTS = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])


class Memory(TokenStorage):
    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def main() -> None:
    answers: list[dict[str, list[str]]] = []

    async def redirect(url: str) -> None:
        async with httpx2.AsyncClient() as browser:
            response = await browser.get(url)
        answers.append(parse_qs(urlsplit(response.headers["location"]).query))

    async def callback() -> AuthorizationCodeResult:
        answer = answers[-1]
        return AuthorizationCodeResult(code=answer["code"][0], state=answer["state"][0], iss=answer["iss"][0])

    metadata = OAuthClientMetadata(redirect_uris=["http://127.0.0.1:1/callback"], client_name="interop")
    memory = Memory()
    auth = OAuthClientProvider(URL, metadata, memory, redirect, callback)
    async with httpx2.AsyncClient(auth=auth) as http:
        async with Client(streamable_http_client(URL, http_client=http)) as client:
            result = await client.call_tool(TOOL, ARGUMENTS)
    granted = memory.tokens.scope if memory.tokens else None
    text = result.content[0].text
    print(json.dumps({"text": text, "flows": len(answers), "scope": granted}))


anyio.run(main)
