"""A scripted MCP server on stdio. It answers each message before it reads the next.

The first argument is JSON: how it answers `server/discover` and `initialize`, and what it does besides.
"""
import hashlib
import json
import os
import sys
import time

plan = json.loads(sys.argv[1])
log = []
held = {}
source = sys.stdin.buffer


def raw(data):
    os.write(1, data) if len(data) < 65536 else (sys.stdout.buffer.write(data), sys.stdout.buffer.flush())


def send(message):
    raw(json.dumps(message).encode() + b"\n")


def result(id, value):
    send({"jsonrpc": "2.0", "id": id, "result": value})


def error(id, code, data=None):
    body = {"code": code, "message": "no"}
    if data is not None:
        body["data"] = data
    send({"jsonrpc": "2.0", "id": id, "error": body})


def notify(method, params):
    send({"jsonrpc": "2.0", "method": method, "params": params})


def read():
    line = source.readline()
    if not line:
        if plan.get("stays"):
            time.sleep(60)
        sys.exit(0)
    log.append(line.decode())
    return json.loads(line)


def text(value):
    body = {"content": [{"type": "text", "text": value}]}
    if plan.get("discover") == "modern":
        body["resultType"] = "complete"
    return body


def discover(message):
    how = plan.get("discover", -32601)
    time.sleep(plan.get("slow", 0))
    if how == "modern":
        result(message["id"], {"resultType": "complete", "supportedVersions": plan.get("versions", ["2026-07-28"]),
                               "capabilities": {"tools": {}}, "instructions": "be kind",
                               "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "scripted"}}})
    elif how == "exit":
        sys.stderr.write("unexpected method\n")
        sys.stderr.flush()
        sys.exit(3)
    elif how == "result":
        result(message["id"], {})
    elif isinstance(how, int):
        error(message["id"], how, plan.get("data"))


def initialize(message):
    how = plan.get("initialize", "2025-11-25")
    if how == "silent":
        return
    if isinstance(how, int):
        return error(message["id"], how, plan.get("data"))
    result(message["id"], {"protocolVersion": how, "capabilities": plan.get("capabilities", {"tools": {}}),
                           "serverInfo": {"name": "scripted"}, "instructions": "be kind"})


def tools(message):
    names = plan.get("tools", ["echo"])
    size = plan.get("page", len(names))
    start = int((message.get("params") or {}).get("cursor", 0))
    page = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names[start:start + size]]}
    if start + size < len(names):
        page["nextCursor"] = str(start + size)
    if plan.get("discover") == "modern":
        page.update({"resultType": "complete", "ttlMs": 60000, "cacheScope": "private"})
    result(message["id"], page)


def call(message):
    id, params = message["id"], message["params"]
    name, arguments = params["name"], params.get("arguments", {})
    if name == "echo":
        result(id, text(arguments.get("text", "")))
    elif name == "big":
        result(id, text("x" * arguments["size"]))
    elif name == "hash":
        result(id, text(hashlib.sha256(arguments["text"].encode()).hexdigest()))
    elif name == "stderr":
        piece = arguments.get("piece", "y" * 63 + "\n")
        for _ in range(arguments["size"] // len(piece)):
            sys.stderr.write(piece)
        sys.stderr.flush()
        result(id, text("done"))
    elif name == "env":
        result(id, text(json.dumps(dict(os.environ))))
    elif name == "pid":
        result(id, text(str(os.getpid())))
    elif name == "log":
        result(id, text(json.dumps(log)))
    elif name == "hold":
        held[id] = message
    elif name == "release":
        for old in list(held):
            result(old, text("late"))
            del held[old]
        result(id, text("released"))
    elif name == "progress":
        token = params["_meta"]["progressToken"]
        for step in range(arguments["steps"]):
            notify("notifications/progress", {"progressToken": token, "progress": step})
        notify("notifications/progress", {"progressToken": "another", "progress": 0})
        result(id, text("done"))
        notify("notifications/progress", {"progressToken": token, "progress": 99})
    elif name == "chat":
        notify("notifications/message", {"level": "info", "data": "from " + str(arguments.get("who"))})
        result(id, text("done"))
    elif name == "ask":
        send({"jsonrpc": "2.0", "id": "q1", "method": "ping"})
        send({"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage", "params": {}})
        answers = [read(), read()]
        result(id, text(json.dumps(answers)))
    elif name == "noise":
        raw(b"*** ready\n\n\r\n[]\n42\n{\"foo\":1}\n\xff\xfe\n\xef\xbb\xbf")
        result(id, text("quiet"))
    elif name == "batch":
        send([{"jsonrpc": "2.0", "method": "notifications/x"},
              {"jsonrpc": "2.0", "id": id, "result": text("from a batch")}])
    elif name == "deep":
        raw(b'{"jsonrpc":"2.0","id":%d,"result":{"x":' % id + b"[" * 200 + b"]" * 200 + b"}}\n")
    elif name == "die":
        sys.stderr.write("giving up\n")
        sys.stderr.flush()
        os._exit(arguments.get("code", 2))
    elif name == "close":
        os.close(1)
        time.sleep(60)
    elif name == "sleep":
        time.sleep(600)
    elif name == "endless":
        while True:
            raw(b"z" * 65536)
    elif name == "fail":
        error(id, -32000, {"why": 1})
    elif name == "change":
        plan["tools"] = arguments["tools"]
        for _ in range(4):
            notify("notifications/tools/list_changed", {})
        result(id, text("changed"))
    else:
        error(id, -32602)


if plan.get("banner"):
    raw(plan["banner"].encode())
while True:
    message = read()
    method = message.get("method")
    if method == "server/discover":
        discover(message)
    elif method == "initialize":
        initialize(message)
    elif method == "tools/list":
        tools(message)
    elif method == "tools/call":
        call(message)
    elif "id" in message and method:
        error(message["id"], -32601)
