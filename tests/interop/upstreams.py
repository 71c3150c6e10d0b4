"""The servers behind Waypost: how each is started or reached, what it offers, what its tools have to answer."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import ENVIRONMENT, NODE, NODE_PACKAGES, PYTHON_V1, PYTHON_V2, Process, free_ports

HERE = Path(__file__).resolve().parent
EXPECTED_TOOLS: dict[str, list[str]] = json.loads((HERE / "expected_tools.json").read_text())
LEGACY, MODERN = "2025-11-25", "2026-07-28"
ODD_TEXT = 'Ünïcödé \u2028 "quoted" \\ back\tslash \U0001f9ed {"tools": []} </script>'

Result = dict[str, Any]
Judge = Callable[[Result], str | None]


@dataclass
class Call:
    tool: str
    arguments: dict[str, Any]
    judge: Judge


@dataclass
class Server:
    """An upstream: how Waypost reaches it, what it offers, and what its tools answer."""

    name: str
    kind: str
    upstream: dict[str, Any]
    calls: Callable[[str], list[Call]]
    ours: bool = False

    @property
    def tools(self) -> list[str]:
        return EXPECTED_TOOLS[self.kind]

    @property
    def over_http(self) -> bool:
        return "url" in self.upstream

    @property
    def over_sse(self) -> bool:
        """Over HTTP+SSE of 2024-11-05."""
        return self.upstream.get("url", "").endswith("/sse")

    @property
    def log_is_attributable(self) -> bool:
        """Not where a legacy server logs on a pipe: nothing tells to whose call a message belongs."""
        return self.over_http or self.kind != "python-v1"


# What a result has to be


def text_is(wanted: str) -> Judge:
    def judge(result: Result) -> str | None:
        texts = [block.get("text") for block in result.get("content", [])]
        if result.get("isError") or texts != [wanted]:
            return f"expected the text {wanted[:200]!r}, got {json.dumps(result)[:400]}"
        return None

    return judge


def text_contains(wanted: str) -> Judge:
    def judge(result: Result) -> str | None:
        texts = " ".join(str(block.get("text")) for block in result.get("content", []))
        if result.get("isError") or wanted not in texts:
            return f"expected {wanted!r} in {json.dumps(result)[:400]}"
        return None

    return judge


def structured_has(**wanted: Any) -> Judge:
    def judge(result: Result) -> str | None:
        structured = result.get("structuredContent") or {}
        different = {key: structured.get(key) for key, value in wanted.items() if structured.get(key) != value}
        return f"expected {wanted}, got {different} in {json.dumps(result)[:400]}" if different else None

    return judge


def echoed(value: str) -> Judge:
    def judge(result: Result) -> str | None:
        problem = text_is(value)(result) or structured_has(text=value)(result)
        length = (result.get("_meta") or {}).get("example.com/length")
        # Python counts code points, JavaScript UTF-16 units.
        if problem is None and length not in (len(value), len(value.encode("utf-16-le")) // 2):
            problem = f"the result's own _meta is not there: {json.dumps(result.get('_meta'))}"
        return problem

    return judge


def failed_with(message: str) -> Judge:
    def judge(result: Result) -> str | None:
        if result.get("isError") is not True or message not in json.dumps(result.get("content"), ensure_ascii=False):
            return f"expected isError with {message!r}, got {json.dumps(result)[:400]}"
        return None

    return judge


def is_image(result: Result) -> str | None:
    images = [block for block in result.get("content", []) if block.get("type") == "image"]
    good = len(images) == 1 and images[0]["mimeType"] == "image/png" and images[0]["data"].startswith("iVBORw0KGgo")
    return None if good else f"expected one PNG image, got {json.dumps(result)[:400]}"


def is_tokyo_time(result: Result) -> str | None:
    structured = result.get("structuredContent") or {}
    problem = structured_has(time_difference="+9.0h")(result)
    target = structured.get("target", {})
    if problem is None and not (
        target.get("timezone") == "Asia/Tokyo" and "T21:00:00+09:00" in target.get("datetime", "")
    ):
        problem = f"12:00 UTC is not 21:00 in Tokyo: {json.dumps(target)}"
    return problem


def is_exactly(wanted: dict[str, Any]) -> Judge:
    def judge(result: Result) -> str | None:
        got = result.get("structuredContent")
        got = got.get("result", got) if isinstance(got, dict) else got
        return None if got == wanted else f"expected exactly {wanted}, got {json.dumps(result)[:400]}"

    return judge


# The servers


def own_calls(protocol: str) -> Callable[[str], list[Call]]:
    def calls(nonce: str) -> list[Call]:
        odd = f"{nonce} {ODD_TEXT}"
        return [
            Call("identify", {}, structured_has(protocol=protocol)),
            Call("echo", {"text": odd}, echoed(odd)),
            Call("fail", {"message": f"no luck, {nonce}"}, failed_with(f"no luck, {nonce}")),
        ]

    return calls


def everything_calls(nonce: str) -> list[Call]:
    return [
        Call("echo", {"message": nonce}, text_is(f"Echo: {nonce}")),
        Call("get-sum", {"a": 40, "b": 2}, text_is("The sum of 40 and 2 is 42.")),
        Call("get-structured-content", {"location": "New York"}, structured_has(temperature=33, humidity=82)),
        Call("get-tiny-image", {}, is_image),
    ]


def memory_calls(nonce: str) -> list[Call]:
    entity = {"name": nonce, "entityType": "nonce", "observations": [f"seen by {nonce}"]}
    return [
        Call("create_entities", {"entities": [entity]}, structured_has(entities=[entity])),
        Call("open_nodes", {"names": [nonce]}, structured_has(entities=[entity], relations=[])),
        Call("delete_entities", {"entityNames": [nonce]}, structured_has(success=True)),
        Call("open_nodes", {"names": [nonce]}, structured_has(entities=[], relations=[])),
    ]


def npm(package: str, *arguments: str) -> dict[str, Any]:
    entry = NODE_PACKAGES / "@modelcontextprotocol" / package / "dist" / "index.js"
    return {"command": str(NODE), "args": [str(entry), *arguments]}


def make_servers(work: Path, processes: list[Process], upstream_token: str) -> list[Server]:
    """Starts what listens on HTTP, and says how Waypost starts or reaches each server."""
    shared = work / "shared"
    shared.mkdir()
    (shared / "note.txt").write_text(ODD_TEXT + "\n")
    repository = work / "repository"
    git = ["git", "-c", "user.name=Interop", "-c", "user.email=interop@example.com", "-C", str(repository)]
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(repository)], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "The first commit"], check=True)

    # Modules find their packages beside them.
    scripts = ENVIRONMENT / "node" / "interop"
    shutil.rmtree(scripts, ignore_errors=True)
    for part in ("servers", "clients"):
        (scripts / part).mkdir(parents=True)
        for script in (HERE / part).glob("*.mjs"):
            shutil.copy(script, scripts / part)

    everything_port, sse_port, v1_port, v2_port, guarded_port, typescript_port = free_ports(6)
    python_v1, python_v2 = HERE / "servers" / "python_v1.py", HERE / "servers" / "python_v2.py"
    typescript = scripts / "servers" / "typescript_v2.mjs"
    everything = NODE_PACKAGES / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    listening: list[tuple[str, list[Any], int, dict[str, str]]] = [
        ("everything", [NODE, everything, "streamableHttp"], everything_port, {"PORT": str(everything_port)}),
        ("everything-sse", [NODE, everything, "sse"], sse_port, {"PORT": str(sse_port)}),
        ("python-v1", [PYTHON_V1, python_v1, "http", v1_port], v1_port, {}),
        ("python-v2", [PYTHON_V2, python_v2, "http", v2_port], v2_port, {}),
        ("python-v2-guarded", [PYTHON_V2, python_v2, "http", guarded_port, upstream_token], guarded_port, {}),
        ("typescript-v2", [NODE, typescript, "http", typescript_port], typescript_port, {}),
    ]
    for name, command, _, env in listening:
        processes.append(Process(name, command, work / f"server-{name}.log", env=env))
    for process, (_, _, port, _) in zip(processes, listening):
        process.wait_for_port(port)

    def http(port: int, **more: Any) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{port}/mcp", **more}

    def stdio(*command: Any) -> dict[str, Any]:
        return {"command": str(command[0]), "args": [str(part) for part in command[1:]]}

    def guarded_calls(nonce: str) -> list[Call]:
        # Its own credential, and nothing of the client's.
        return [
            *own_calls(MODERN)(nonce),
            Call("credentials", {}, is_exactly({"authorization": f"Bearer {upstream_token}"})),
        ]

    note = shared / "note.txt"
    bin_v2 = PYTHON_V2.parent
    memory = {**npm("server-memory"), "env": {"MEMORY_FILE_PATH": str(work / "memory.json")}}
    return [
        Server("everything", "everything", npm("server-everything", "stdio"), everything_calls),
        # It offers more to a client that can be asked. Over a pipe, which clients share by default, Waypost cannot.
        Server("everything-http", "everything-asked", http(everything_port), everything_calls),
        # HTTP+SSE of 2024-11-05, found out by the probe; each session has a stream of its own.
        Server("everything-sse", "everything-asked", {"url": f"http://127.0.0.1:{sse_port}/sse"}, everything_calls),
        Server(
            "filesystem",
            "filesystem",
            npm("server-filesystem", str(shared)),
            lambda nonce: [
                Call("read_text_file", {"path": str(note)}, text_is(ODD_TEXT + "\n")),
                Call("list_directory", {"path": str(shared)}, text_contains("[FILE] note.txt")),
            ],
        ),
        Server("memory", "memory", memory, memory_calls),
        Server(
            "time",
            "time",
            stdio(bin_v2 / "mcp-server-time", "--local-timezone", "UTC"),
            lambda nonce: [
                Call(
                    "convert_time",
                    {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
                    is_tokyo_time,
                ),
                Call("get_current_time", {"timezone": f"Nowhere/{nonce}"}, failed_with(f"Nowhere/{nonce}")),
            ],
        ),
        Server(
            "git",
            "git",
            stdio(bin_v2 / "mcp-server-git", "--repository", repository),
            lambda nonce: [
                Call("git_log", {"repo_path": str(repository), "max_count": 1}, text_contains("The first commit")),
                Call("git_status", {"repo_path": str(repository)}, text_contains("On branch main")),
            ],
        ),
        Server("python-v1", "python-v1", stdio(PYTHON_V1, python_v1, "stdio"), own_calls(LEGACY), ours=True),
        Server("python-v1-http", "python-v1", http(v1_port), own_calls(LEGACY), ours=True),
        Server("python-v2", "python-v2", stdio(PYTHON_V2, python_v2, "stdio"), own_calls(MODERN), ours=True),
        Server("python-v2-http", "python-v2", http(v2_port), own_calls(MODERN), ours=True),
        # The same server, spoken to in the older era because the config says so.
        Server("python-v2-pinned", "python-v2", http(v2_port, era="legacy"), own_calls(LEGACY), ours=True),
        Server(
            "python-v2-guarded",
            "python-v2",
            http(guarded_port, headers={"Authorization": "Bearer ${INTEROP_UPSTREAM_TOKEN}"}),
            guarded_calls,
            ours=True,
        ),
        Server("typescript-v2", "typescript-v2", stdio(NODE, typescript, "stdio"), own_calls("modern"), ours=True),
        Server("typescript-v2-http", "typescript-v2", http(typescript_port), own_calls("modern"), ours=True),
    ]
