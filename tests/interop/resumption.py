"""Official clients that lose their connection in the middle of a call, and come back to it by themselves."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

from harness import PYTHON_V2, Process, Tally, Waypost
from plans import Plan, judge_answer, judge_progress, make_clients
from upstreams import text_is

HERE = Path(__file__).resolve().parent
# What each client must receive before its connection is cut, one after the other.
MARKS = (b'"progress":1', b'"progress":2')
# Clients of the handshake revisions that come back by themselves, and how often they are cut off. The Python SDK
# names the event of its first loss again when it loses the connection a second time, so it is sent things twice.
COME_BACK = {"python-v1": 1, "python-v2 legacy": 1, "typescript-v1": 2, "typescript-v2 legacy": 2}


class CuttingRelay:
    """Passes connections on to a port, and cuts each that has carried the next mark to its client."""

    def __init__(self, port: int, most: int) -> None:
        self.target = port
        self.most = most
        self.cuts = 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
                threading.Thread(target=self.pass_on, args=(client, server), daemon=True).start()
                threading.Thread(target=self.pass_back, args=(server, client), daemon=True).start()

    def pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := client.recv(65536):
                server.sendall(piece)
        hang_up(server)

    def pass_back(self, server: socket.socket, client: socket.socket) -> None:
        seen = b""
        with contextlib.suppress(OSError):
            while piece := server.recv(65536):
                end = self.cut_after(seen, piece)
                client.sendall(piece[:end])
                if end is not None:
                    break
                seen = (seen + piece)[-4096:]
        hang_up(server)
        hang_up(client)

    def cut_after(self, seen: bytes, piece: bytes) -> int | None:
        """Where in `piece` the event ends that carries the next mark; nothing before it counts."""
        with self.lock:
            if self.cuts == self.most:
                return None
            whole = seen + piece
            at = whole.find(MARKS[self.cuts])
            end = whole.find(b"\n\n", at)
            if at < 0 or end < len(seen):
                return None
            self.cuts += 1
            return end + 2 - len(seen)

    def close(self) -> None:
        self.listener.close()


def hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def run_resumption(tally: Tally, processes: list[Process], work: Path) -> None:
    own = {"command": str(PYTHON_V2), "args": [str(HERE / "servers" / "python_v2.py"), "stdio"]}
    waypost = Waypost("resumption", {"upstreams": {"own": own}}, work)
    processes.append(waypost)
    waypost.wait_until_ready()
    clients = make_clients({"python": "", "typescript": ""})
    for client in [client for client in clients if client.name in COME_BACK]:
        most = COME_BACK[client.name]
        relay = CuttingRelay(waypost.port, most)
        plan = Plan(f"http://127.0.0.1:{relay.port}/mcp", client, [], lambda _: "", "resumption")
        plan.fill(only_parallel=True)
        arguments = {"to": 3, "label": "cut"}
        plan.steps["progress"] = [{"id": "count", "tool": "own__count", "arguments": arguments}]
        records = [record for record in plan.run(work) if record["step"] in ("progress", "crash")]
        relay.close()
        record = records[0] if records else {}
        name = f"resumption: {client.name}, cut off after each progress,"
        cut = None if relay.cuts == most else f"cut {relay.cuts} times"
        tally.check(f"{name} loses its connection {most} times", cut)
        tally.check(f"{name} gets the answer", judge_answer(record, text_is("counted to 3")))
        tally.check(f"{name} gets each progress once", judge_progress(record))
    waypost.stop()
