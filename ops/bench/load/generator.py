"""Open-loop load generator, a process of its own: `python -m ops.bench.load.generator FOLDER`.

Each request leaves when it is due, even if earlier ones are unanswered, so that a server that
stalls is charged for the stall. Plain sockets under one epoll: asyncio's timers go by
milliseconds, and the difference between two servers may be less than one.

Reads FOLDER/plan.json, prints a line, waits for one, sends, prints a line after the last response,
and writes FOLDER/calls.npz. Sends nothing more once its standard input has ended.
"""

import gc
import json
import resource
import select
import socket
import sys
import time
from collections.abc import Sequence
from math import inf, nan
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import orjson
from httptools import HttpResponseParser

from jobs import clock

_IDLE_S = 2.0  # the server may close a connection that was idle for longer
_SPIN_S = 0.0001  # shorter waits are not slept: waking takes as long
_BLOCK_BYTES = 1 << 16
_MAX_FILES = 1 << 16
_STDIN = 0
_OK = (200, 202)  # 202: an accepted job


class Connection:
    """Keep-alive connection, the number of its request, and the response as it arrives."""

    __slots__ = ("_parser", "body", "closes", "complete", "number", "socket", "status", "used_s")

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._parser = HttpResponseParser(self)
        self.number, self.used_s, self.status = -1, 0.0, 0
        self.body, self.complete, self.closes = b"", False, False

    def send(self, number: int, request: bytes) -> None:
        """Sends a request."""
        self.number, self.body, self.complete = number, b"", False
        self.socket.sendall(request)

    def receive(self) -> bool:
        """Reads once; returns False where the server has closed the connection."""
        piece = self.socket.recv(_BLOCK_BYTES)
        if piece:
            self._parser.feed_data(piece)
        return bool(piece)

    def on_body(self, piece: bytes) -> None:
        """Called by the parser with a part of the body."""
        self.body += piece

    def on_message_complete(self) -> None:
        """Called by the parser at the end of a response."""
        self.complete, self.closes = True, not self._parser.should_keep_alive()
        self.status = self._parser.get_status_code()


class Generator:
    """Sends requests, in turn, at their due times.

    due_s: seconds after the start, in order. max_in_flight: requests wait above it (a closed
    loop); 0: unbounded. grace_s: wait for responses after the last request.
    """

    def __init__(
        self, address: tuple[str, int], requests: Sequence[bytes], due_s: Sequence[float],
        max_in_flight: int, grace_s: float,
    ) -> None:  # fmt: skip
        self._address, self._requests, self._due_s = address, requests, due_s
        self._most, self._grace_s = max_in_flight or inf, grace_s
        self._epoll = select.epoll()
        self._epolls = [self._epoll]
        self._idle: list[Connection] = []
        self._busy: dict[int, Connection] = {}
        self._stop = len(due_s)
        self.started_s = 0.0
        self.sent_s, self.ended_s = [nan] * len(due_s), [nan] * len(due_s)
        self.statuses, self.bodies = [0] * len(due_s), [b""] * len(due_s)

    def run(self) -> int:
        """Number of requests that were sent."""
        self._epoll.register(_STDIN, select.EPOLLIN)
        self.started_s = clock.monotonic()
        number = 0
        while number < self._stop:
            if self._wait_s(number) <= 0:
                self._send(number)
                number += 1
            self._receive(self._wait_s(number))
        deadline_s = clock.monotonic() + self._grace_s
        while self._busy and clock.monotonic() < deadline_s:
            self._receive(deadline_s - clock.monotonic())
        return number

    def _wait_s(self, number: int) -> float:
        if number == len(self._due_s):
            return 0.0
        if len(self._busy) >= self._most:
            return 1.0  # or until a response arrives
        return self.started_s + self._due_s[number] - clock.monotonic()

    def _send(self, number: int) -> None:
        self.sent_s[number] = clock.monotonic() - self.started_s
        try:
            connection = self._connection()
        except OSError:
            return  # nobody listens
        self._busy[connection.socket.fileno()] = connection
        try:
            connection.send(number, self._requests[number % len(self._requests)])
        except ConnectionError:
            self._close(connection)

    def _connection(self) -> Connection:
        """Connection that was used last, or a new one if all were idle for too long."""
        fresh_s = clock.monotonic() - _IDLE_S
        if self._idle and self._idle[-1].used_s > fresh_s:
            return self._idle.pop()
        while self._idle:
            self._close(self._idle.pop())
        connection = Connection(self._address)
        self._epoll.register(connection.socket.fileno(), select.EPOLLIN)
        return connection

    def _receive(self, within_s: float) -> None:
        # select waits in microseconds, epoll in milliseconds.
        if within_s > _SPIN_S and not select.select(self._epolls, [], [], within_s)[0]:
            return
        for file, _ in self._epoll.poll(0):
            if file == _STDIN:
                self._epoll.unregister(_STDIN)
                self._stop = 0
            elif connection := self._busy.get(file):
                self._read(connection)
            else:  # the server closed an idle one
                closed = next(idle for idle in self._idle if idle.socket.fileno() == file)
                self._idle.remove(closed)
                self._close(closed)

    def _read(self, connection: Connection) -> None:
        try:
            is_open = connection.receive()
        except ConnectionError:
            is_open = False
        if connection.complete:
            number = connection.number
            self.ended_s[number] = clock.monotonic() - self.started_s
            self.statuses[number], self.bodies[number] = connection.status, connection.body
            is_open = not connection.closes
        if not is_open:
            self._close(connection)
        elif connection.complete:
            del self._busy[connection.socket.fileno()]
            connection.used_s = clock.monotonic()
            self._idle.append(connection)

    def _close(self, connection: Connection) -> None:
        file = connection.socket.fileno()
        self._busy.pop(file, None)
        self._epoll.unregister(file)
        connection.socket.close()


def _request(host: str, path: str, body: str, key: str) -> bytes:
    """Bytes of a POST of JSON. key: an API key; empty: no Authorization header."""
    content, authorization = body.encode(), f"Authorization: Bearer {key}\r\n" if key else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\n{authorization}Content-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


#: Columns of the responses, read once all of them have arrived, with their types.
_NUMBERS = ("batch_size", "engine_ms", "predicted_ms", "padding")
_TYPES: dict[str, Any] = {
    **dict.fromkeys((*_NUMBERS, "units"), float),
    "degraded": bool,
    "right": bool,
    "flush": "U16",
    "code": "U32",
    "job": "U40",
}


def _row(status: int, body: bytes, expected: Any) -> dict[str, Any]:
    """Fields of a response: its timing (nan where absent), its error code, the id of a job.

    right: the output is the expected one (None: any).
    """
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    response = found if isinstance(found, dict) else {}
    timing, usage = response.get("timing", {}), response.get("usage", {})
    return {
        **{name: timing.get(name, nan) for name in _NUMBERS},
        "units": sum(units for name, units in usage.items() if name != "truncated") or nan,
        "flush": timing.get("flush", ""),
        "degraded": bool(response.get("degraded")),
        "right": status in _OK and (expected is None or response.get("output") == expected),
        "code": response.get("code", ""),
        "job": response.get("id", ""),
    }


def _main(folder: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _MAX_FILES), hard))
    url, bodies, outputs = urlsplit(plan["url"]), plan["bodies"], plan["outputs"]
    keys = plan["keys"] or [""] * len(bodies)
    generator = Generator(
        (str(url.hostname), url.port or 80),
        [_request(url.netloc, url.path or "/", *each) for each in zip(bodies, keys, strict=True)],
        *(plan["due_s"], plan["max_in_flight"], plan["grace_s"]),
    )
    gc.freeze()
    gc.disable()
    print("0", flush=True)
    sys.stdin.readline()
    cpu_s = time.process_time()
    sent = generator.run()
    cpu_s = time.process_time() - cpu_s
    print("0", flush=True)
    rows = [
        _row(generator.statuses[n], generator.bodies[n], outputs and outputs[n % len(outputs)])
        for n in range(sent)
    ]
    columns = {name: np.array([row[name] for row in rows], type) for name, type in _TYPES.items()}
    times = {"due_s": plan["due_s"], "sent_s": generator.sent_s, "ended_s": generator.ended_s}
    columns |= {name: np.array(values[:sent], float) for name, values in times.items()}
    columns["status"] = np.array(generator.statuses[:sent], dtype=np.int16)
    columns |= {"started_s": np.array(generator.started_s), "cpu_s": np.array(cpu_s)}
    np.savez(folder / "calls.npz", allow_pickle=False, **columns)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
