"""Faults of too much at once: connections, calls."""

import select
import socket
from collections import Counter
from contextlib import ExitStack, closing, suppress
from random import Random

import psycopg

from jobs import clock
from jobs.store import db
from ops.bench.chaos.faults.targets import PATIENCE_S, Proof, Stage, Steps, Unfired, a_while, true

_NONE_LEFT = "too many clients"
_STEP = 10  # connections at one step of the main loop
_CALLS = 1000
_ANSWERED_WITHIN_S = 30.0
_BODY = b'{"model": "echo", "input": "burst", "timeout_ms": 5000}'
_REQUEST = (
    b"POST /infer HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


def connections_full(stage: Stage, dice: Random) -> Steps[Proof]:
    """Opens all connections that PostgreSQL has left, for seconds."""
    yield from true(lambda: "postgres" not in stage.busy)
    url = db.plain_url(stage.fleet.database_url)
    with stage.holding("postgres"), ExitStack() as opened:
        count, error = 0, ""
        while not error:
            for _ in range(_STEP):
                try:
                    opened.enter_context(closing(psycopg.connect(url, connect_timeout=2)))
                except psycopg.OperationalError as refused:
                    error = str(refused)
                    break
                count += 1
            yield
        if _NONE_LEFT not in error:
            raise Unfired(error)
        yield from a_while(dice.uniform(1.0, 4.0))
    return {"opened": count, "error": error}


def call_burst(stage: Stage, dice: Random) -> Steps[Proof]:
    """Sends a thousand calls to one api at one moment, each on its own connection."""
    address = "127.0.0.1", dice.choice(stage.fleet.client_ports)
    with ExitStack() as opened:
        connected, over_s = list[socket.socket](), clock.monotonic() + PATIENCE_S
        while len(connected) < _CALLS:
            if clock.monotonic() > over_s:
                raise Unfired(f"only {len(connected)} connections within {PATIENCE_S:g} s")
            with suppress(OSError):
                for _ in range(_STEP):
                    one = opened.enter_context(socket.create_connection(address, timeout=0.2))
                    one.setblocking(False)
                    connected.append(one)
            yield
        since_s = clock.monotonic()
        for one in connected:
            with suppress(OSError):
                one.sendall(_REQUEST)
        answers = yield from _answers(connected)
    return {**answers, "took_s": round(clock.monotonic() - since_s, 3)}


def _answers(connected: list[socket.socket]) -> Steps[dict[str, int]]:
    """Returns how many connections had each status, or ended without an answer."""
    found, left = Counter[str](), {one.fileno(): one for one in connected}
    over_s = clock.monotonic() + _ANSWERED_WITHIN_S
    with select.epoll() as poll:
        for number in left:
            poll.register(number, select.EPOLLIN)
        while left and clock.monotonic() < over_s:
            for number, _ in poll.poll(0):
                begun = b""
                with suppress(OSError):
                    begun = left.pop(number).recv(64)
                poll.unregister(number)
                found[begun[9:12].decode() or "broken off"] += 1
            yield
    return {**found, **({"unanswered": len(left)} if left else {})}
