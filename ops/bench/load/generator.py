"""Calls in an open loop, in a process of their own: `… -m ops.bench.generator FOLDER`.

Each request leaves when it is due, whatever the server does with those before, so that a server
that stalls is charged for the stall. Plain sockets under one epoll: asyncio's timers go by
milliseconds, and the difference between two servers may be less than one.

It says "ready", waits for a line, and sends; it says "driven" when the last answer is there. When
its standard input ends nothing more is sent. The answers are read only after that.
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

from jobs import clock
from ops.bench.load import responses
from ops.bench.load.http_parser import HttpAnswer, request

NO_ANSWER = 0
_IDLE_S = 2.0  # a connection that waited longer may be closed by the server any moment
_SPIN_S = 0.0001  # less than this is not slept for: waking takes as long
_BLOCK_BYTES = 1 << 16
_MOST_FILES = 1 << 16
_STDIN = 0


class Connection:
    """One kept connection; number: of the request that it carries."""

    __slots__ = ("answer", "number", "socket", "used_s")

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number, self.answer, self.used_s = -1, HttpAnswer(), 0.0


class Generator:
    """due_s: when each request leaves, seconds after the start, in order; they take the requests
    in turn. most_in_flight: above it they wait (a closed loop); 0: no bound. grace_s: how long
    after the last one an answer is waited for."""

    def __init__(
        self, address: tuple[str, int], requests: Sequence[bytes], due_s: Sequence[float],
        most_in_flight: int, grace_s: float,
    ) -> None:  # fmt: skip
        self._address, self._requests, self._due_s = address, requests, due_s
        self._most, self._grace_s = most_in_flight or inf, grace_s
        self._epoll = select.epoll()
        self._epolls = [self._epoll]
        self._idle: list[Connection] = []
        self._busy: dict[int, Connection] = {}
        self._stop = len(due_s)
        self.started_s = 0.0
        self.sent_s = [nan] * len(due_s)
        self.ended_s = [nan] * len(due_s)
        self.statuses = [NO_ANSWER] * len(due_s)
        self.bodies = [b""] * len(due_s)

    def run(self) -> int:
        """How many requests it sent."""
        self._epoll.register(_STDIN, select.EPOLLIN)
        self.started_s = clock.monotonic()
        number = 0
        while number < self._stop:
            if self._wait_s(number) <= 0:
                self._send(number)
                number += 1
            self._receive(self._wait_s(number))
        give_up_s = clock.monotonic() + self._grace_s
        while self._busy and clock.monotonic() < give_up_s:
            self._receive(give_up_s - clock.monotonic())
        return number

    def _wait_s(self, number: int) -> float:
        if number == len(self._due_s):
            return 0.0
        if len(self._busy) >= self._most:
            return 1.0  # or until an answer comes
        return self.started_s + self._due_s[number] - clock.monotonic()

    def _send(self, number: int) -> None:
        self.sent_s[number] = clock.monotonic() - self.started_s
        try:
            connection = self._connection()
        except OSError:
            return  # nobody listens: no answer
        connection.number, connection.answer = number, HttpAnswer()
        self._busy[connection.socket.fileno()] = connection
        try:
            connection.socket.sendall(self._requests[number % len(self._requests)])
        except ConnectionError:
            self._close(connection)

    def _connection(self) -> Connection:
        """The one used last; those that were idle for long are left behind."""
        fresh_s = clock.monotonic() - _IDLE_S
        if self._idle and self._idle[-1].used_s > fresh_s:
            return self._idle.pop()
        while self._idle:
            self._close(self._idle.pop())
        made = Connection(self._address)
        self._epoll.register(made.socket.fileno(), select.EPOLLIN)
        return made

    def _receive(self, within_s: float) -> None:
        if within_s > _SPIN_S:
            # In microseconds; epoll has milliseconds.
            readable, _, _ = select.select(self._epolls, [], [], within_s)
            if not readable:
                return
        for file, _ in self._epoll.poll(0):
            if file == _STDIN:
                self._epoll.unregister(_STDIN)
                self._stop = 0
            elif connection := self._busy.get(file):
                self._read(connection)
            else:
                self._forget_idle(file)

    def _read(self, connection: Connection) -> None:
        try:
            piece = connection.socket.recv(_BLOCK_BYTES)
            complete = bool(piece) and connection.answer.feed(piece)
        except ConnectionError:
            piece = b""
        if not piece:
            self._close(connection)  # no answer
        elif complete:
            self._note(connection.number, connection.answer)
            self._keep(connection)

    def _note(self, number: int, answer: HttpAnswer) -> None:
        self.ended_s[number] = clock.monotonic() - self.started_s
        self.statuses[number] = answer.status
        self.bodies[number] = answer.body

    def _keep(self, connection: Connection) -> None:
        del self._busy[connection.socket.fileno()]
        if connection.answer.closes:
            self._close(connection)
        else:
            connection.used_s = clock.monotonic()
            self._idle.append(connection)

    def _forget_idle(self, file: int) -> None:
        """The server has closed it."""
        for connection in self._idle:
            if connection.socket.fileno() == file:
                self._idle.remove(connection)
                self._close(connection)
                return

    def _close(self, connection: Connection) -> None:
        file = connection.socket.fileno()
        self._busy.pop(file, None)
        self._epoll.unregister(file)
        connection.socket.close()


def _main(folder: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _MOST_FILES), hard))
    made = _generator(plan)
    gc.freeze()
    gc.disable()
    print("ready", flush=True)
    sys.stdin.readline()
    cpu_s = time.process_time()
    sent = made.run()
    cpu_s = time.process_time() - cpu_s
    print("driven", flush=True)
    columns = {
        "started_s": np.array(made.started_s),
        "cpu_s": np.array(cpu_s),
        "due_s": np.array(plan["due_s"][:sent], dtype=float),
        "sent_s": np.array(made.sent_s[:sent], dtype=float),
        "ended_s": np.array(made.ended_s[:sent], dtype=float),
        "status": np.array(made.statuses[:sent], dtype=np.int16),
    }
    columns |= responses.read(made.statuses[:sent], made.bodies[:sent], plan["outputs"])
    np.savez(folder / "calls.npz", allow_pickle=False, **columns)


def _generator(plan: Any) -> Generator:
    address = urlsplit(plan["url"])
    keys = plan["keys"] or [""] * len(plan["bodies"])
    requests = [
        request(address.netloc, address.path or "/", body.encode(), key)
        for body, key in zip(plan["bodies"], keys, strict=True)
    ]
    return Generator(
        (str(address.hostname), int(address.port or 80)),
        *(requests, plan["due_s"], plan["most_in_flight"], plan["grace_s"]),
    )


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
