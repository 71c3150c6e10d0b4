"""A small authorization server on PyJWT: metadata, registration, code flow with PKCE, RS256 tokens, rotation.

Says yes to every authorization request. `POST /rotate` makes a new key and forgets the old one. What a token is for
is what the client names as `resource`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

PORT = int(sys.argv[1])
ISSUER = f"http://127.0.0.1:{PORT}"


class State:
    def __init__(self) -> None:
        self.codes: dict[str, dict[str, str]] = {}
        self.clients: set[str] = set()
        self.rotate()

    def rotate(self) -> None:
        self.kid = secrets.token_hex(4)
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def jwk(self) -> dict[str, Any]:
        jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {**jwk, "kid": self.kid, "use": "sig", "alg": "RS256"}

    def token(self, resource: str, scope: str) -> str:
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": resource, "sub": "someone", "scope": scope, "iat": now, "exp": now + 300}
        return jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": self.kid, "typ": "at+jwt"})


STATE = State()
METADATA = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "registration_endpoint": f"{ISSUER}/register",
    "jwks_uri": f"{ISSUER}/jwks",
    "response_types_supported": ["code"],
    "grant_types_supported": ["authorization_code"],
    "code_challenge_methods_supported": ["S256"],
    "token_endpoint_auth_methods_supported": ["none"],
    "authorization_response_iss_parameter_supported": True,
}


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def say(self, status: int, document: Any, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = {key: values[0] for key, values in parse_qs(url.query).items()}
        if url.path == "/.well-known/oauth-authorization-server":
            self.say(200, METADATA)
        elif url.path == "/jwks":
            self.say(200, {"keys": [STATE.jwk()]})
        elif url.path == "/authorize" and asked.get("client_id") in STATE.clients and "resource" in asked:
            code = secrets.token_hex(8)
            STATE.codes[code] = asked
            back = {"code": code, "state": asked.get("state", ""), "iss": ISSUER}
            self.say(302, {}, {"Location": f"{asked['redirect_uri']}?{urlencode(back)}"})
        else:
            self.say(404, {"error": "invalid_request"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        if self.path == "/register":
            client = secrets.token_hex(8)
            STATE.clients.add(client)
            self.say(201, {**json.loads(body), "client_id": client, "token_endpoint_auth_method": "none"})
        elif self.path == "/token":
            self.exchange({key: values[0] for key, values in parse_qs(body).items()})
        elif self.path == "/rotate":
            STATE.rotate()
            self.say(200, {})
        else:
            self.say(404, {})

    def exchange(self, asked: dict[str, str]) -> None:
        begun = STATE.codes.pop(asked.get("code", ""), None)
        digest = hashlib.sha256(asked.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if begun is None or begun.get("code_challenge") != challenge or asked.get("resource") != begun["resource"]:
            self.say(400, {"error": "invalid_grant"})
            return
        scope = begun.get("scope", "")
        token = STATE.token(begun["resource"], scope)
        self.say(200, {"access_token": token, "token_type": "Bearer", "expires_in": 300, "scope": scope})

    def log_message(self, format: str, *args: Any) -> None:
        sys.stderr.write(format % args + "\n")


ThreadingHTTPServer(("127.0.0.1", PORT), Answers).serve_forever()
