"""`millrace bench burst`: up to ten thousand calls at one moment, each on its own connection."""

import json
import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from jobs.processes import open_files
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.results.plots import DARK, label, picture
from ops.bench.results.report import Report, scenario
from ops.supervisor.platform import Platform

_TARGET_MS = 200
_SMALL = (50, 100, 200)  # the capacity is the best of these, too
_SIZES = (400, 3000, 10_000)
_WARM_UP, _AFTER_S = 20, 2.0
_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Burst:
    """Answers to calls that were sent at once, by status; ms from its own sending each."""

    took_ms: dict[int, list[float]]

    @property
    def in_time(self) -> int:
        """Calls that were answered within the target."""
        return sum(ms <= _TARGET_MS for ms in self.took_ms.get(200, ()))

    @property
    def refused_ms(self) -> float:
        """Time (ms) of the slowest refusal."""
        return max(self.took_ms.get(429, ()), default=0.0)

    @property
    def failed(self) -> int:
        """Calls with neither an answer nor a refusal."""
        return sum(len(each) for status, each in self.took_ms.items() if status not in (200, 429))


@scenario(
    "burst",
    *(f"goodput_{size} >= 0.8" for size in _SIZES),
    *(f"refused_max_ms_{size} <= 250" for size in _SIZES),
    "failed <= 0",
)
def run(report: Report, scale: Scale) -> Any:
    """Sends bursts of all sizes in turn, several times, on the same connections."""
    open_files.raise_limit()
    model = sample("batchstring", target_ms=_TARGET_MS)
    with own_platform(2, models_file(model)) as platform, _connections(platform) as connected:
        for _ in range(_WARM_UP):
            _send(connected[:1])
        sizes = (*_SMALL, *_SIZES)
        bursts = scale.in_turn({size: partial(_burst, connected, size) for size in sizes})
    report.median(**{f"in_time_{n}": (each.in_time for each in bursts[n]) for n in sizes})
    capacity = max(report.figures[f"in_time_{n}"] for n in sizes)
    for n in _SIZES:
        report.add(**{f"goodput_{n}": report.figures[f"in_time_{n}"] / (capacity or 1)})
        report.median(**{f"refused_max_ms_{n}": (each.refused_ms for each in bursts[n])})
    report.add(failed=sum(burst.failed for n in sizes for burst in bursts[n]))
    return _picture(bursts[_SIZES[1]])


def _burst(connected: Sequence[socket.socket], size: int, _: int) -> Burst:
    time.sleep(_AFTER_S)  # the burst before it is over, and admission has forgotten it
    burst = _send(connected[:size])
    counts = {status: len(each) for status, each in burst.took_ms.items()}
    say(f"{size} calls: {burst.in_time} in time; {counts}")
    return burst


@contextmanager
def _connections(platform: Platform) -> Iterator[Sequence[socket.socket]]:
    where = urlsplit(platform.url)
    address = where.hostname or "", where.port or 80
    with ExitStack() as stack:
        connect = partial(socket.create_connection, address)
        yield [stack.enter_context(connect()) for _ in range(max(_SIZES))]


def _send(connected: Sequence[socket.socket]) -> Burst:
    """Sends a call on each connection, and awaits all responses. Raises TimeoutError."""
    sent_s, parts = dict[int, float](), dict[int, bytes]()
    by_number = {one.fileno(): one for one in connected}
    took_ms: dict[int, list[float]] = {}
    with select.epoll() as poll:
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        for n, one in enumerate(connected):
            sent_s[one.fileno()] = time.monotonic()
            one.sendall(_request(n))
        until_s = time.monotonic() + _WITHIN_S
        while len(parts) < len(connected) or any(parts.values()):
            if time.monotonic() > until_s:
                raise TimeoutError(f"a call had no response within {_WITHIN_S:g} s")
            for number, _ in poll.poll(1.0):
                received = parts.get(number, b"") + by_number[number].recv(65_536)
                status = _status(received)
                parts[number] = b"" if status else received
                if status:
                    ms = (time.monotonic() - sent_s[number]) * 1000
                    took_ms.setdefault(status, []).append(ms)
    return Burst(took_ms)


def _request(n: int) -> bytes:
    body = json.dumps({"model": "batchstring", "input": f"text {n}"}).encode()
    head = "POST /infer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _status(received: bytes) -> int:
    """Returns the status of a whole response, or 0."""
    head, ended, body = received.partition(b"\r\n\r\n")
    if not ended:
        return 0
    _, _, length = head.lower().partition(b"content-length: ")
    return int(head.split()[1]) if len(body) >= int(length.split()[0]) else 0


def _picture(bursts: Sequence[Burst]) -> Any:
    figure, plot = picture(1, 6, 2.6)
    for status, name, color in ((200, "answered", DARK), (429, "refused", "#bdbdbd")):
        plot.hist([ms for each in bursts for ms in each.took_ms.get(status, ())], bins=60,
                  label=name, color=color)  # fmt: skip
    label(plot, f"{_SIZES[1]:,} calls at once", "ms from sending a call", "calls", True)
    return figure
