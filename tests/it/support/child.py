"""A stdio child that is the far end of a scripted upstream: it connects its standard streams with a TCP
port of the test, which decides every byte. Frames in both directions: kind, length (4 bytes), payload."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading


def frame(kind, payload=b""):
    return kind + struct.pack(">I", len(payload)) + payload


class Child:
    def __init__(self, port, flags):
        self.flags = flags
        self.control = socket.create_connection(("127.0.0.1", port))
        self.control.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.lock = threading.Lock()
        self.turn = threading.Semaphore(0)
        hello = {"pid": os.getpid(), "ppid": os.getppid(), "env": dict(os.environ), "cwd": os.getcwd()}
        self.say(b"H", json.dumps(hello).encode())

    def say(self, kind, payload=b""):
        with self.lock:
            self.control.sendall(frame(kind, payload))

    def pump_stdin(self):
        if "serial" in self.flags:
            # Reads nothing while an answer is being written: the plainest possible server.
            for line in sys.stdin.buffer:
                self.say(b"I", line)
                self.turn.acquire()
        else:
            while chunk := os.read(0, 1 << 16):
                self.say(b"I", chunk)
        self.say(b"E")
        if "stay" not in self.flags:
            os._exit(0)

    def exactly(self, count):
        parts = []
        while count:
            part = self.control.recv(min(count, 1 << 20))
            if not part:
                os._exit(0)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def write(self, fd, payload):
        view = memoryview(payload)
        try:
            while view:
                view = view[os.write(fd, view) :]
        except BrokenPipeError:
            pass

    def obey(self):
        if "deaf" not in self.flags:
            threading.Thread(target=self.pump_stdin, daemon=True).start()
        while True:
            head = self.exactly(5)
            kind, payload = head[:1], self.exactly(struct.unpack(">I", head[1:])[0])
            if kind == b"O":
                self.write(1, payload)
            elif kind == b"R":
                self.write(2, payload)
            elif kind == b"P":
                self.turn.release()
            elif kind == b"C":
                os.close(1)
            elif kind == b"X":
                os._exit(int(payload))
            elif kind == b"K":
                os.kill(os.getpid(), signal.SIGKILL)
            elif kind == b"S":
                subprocess.Popen(["sleep", payload.decode()])
            elif kind == b"M":
                program = "import sys, time; kept = b'x' * (int(sys.argv[1]) << 20); time.sleep(600)"
                subprocess.Popen([sys.executable, "-c", program, payload.decode()])
            elif kind == b"B":
                subprocess.Popen([sys.executable, "-c", "while True: pass"])


def join_streams(port):
    """Joins the standard streams with the port as they are: for a server that speaks for itself."""
    peer = socket.create_connection(("127.0.0.1", port))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send():
        while chunk := os.read(0, 1 << 16):
            peer.sendall(chunk)
        peer.shutdown(socket.SHUT_WR)

    threading.Thread(target=send, daemon=True).start()
    while chunk := peer.recv(1 << 16):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    if "plain" in sys.argv[2:]:
        join_streams(int(sys.argv[1]))
        os._exit(0)
    if "ignore-term" in sys.argv[2:]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Child(int(sys.argv[1]), sys.argv[2:]).obey()
