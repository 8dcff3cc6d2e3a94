"""Turns of requests that come faster than this process can begin them.

Why: an event loop begins all that it has read before it sends the first command to Redis. Of a
thousand calls that are read at once, the first would wait until the last was parsed, and so nobody
would be answered in time, however many the devices could serve. One turn of the loop therefore
begins a few requests. The others wait here, unparsed, and tenants take turns. A call that would
wait, or has waited, longer than any model's target leaves room for is refused by a response that
was made before, at a few per cent of the cost of a served one.
"""

import asyncio
import re
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Protocol

from api.http.errors import problem_response
from api.http.request_id import new_request_id
from api.http.responses import encode_head
from api.http.retry_after import retry_delay_s
from jobs import clock
from jobs.errors import TooLate
from jobs.telemetry.metrics import record

BEGUN = 16
"""Requests that a turn of the loop begins: about ten milliseconds. A call takes five turns from its
arrival to its response, so that with 64 those of other tenants were late too."""
_REFUSED = 384  # requests that a turn refuses where it begins none
_BESIDE = 128  # and where it begins some: those have less time than the others' refusals
_AT_ONCE = 64  # of them, of one tenant before it is compared with the others
_SMOOTHING = 0.3  # of the mean time that a request takes its turn for
_HELD_BYTES = 65_536  # of a connection that waits, after which it is read no further

_REQUEST_LINE = re.compile(rb"POST (/[^ ?]*)[^ ]* HTTP/1\.1\r\n")
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d{1,9})\r\n")
# A stream that is read on has been admitted before; the others need the parser.
_PARSED = re.compile(rb"(?i)\r\n(?:last-event-id|expect|transfer-encoding|connection: *close)")
_CREDENTIAL = re.compile(rb"(?i)\r\n(authorization|x-api-key): *([^\r]+)")
_ID = new_request_id()
_ROUNDED_MS = 20  # Retry-After, so that few responses are made


@dataclass(frozen=True, slots=True)
class Policy:
    """Decisions about requests that wait, by what the application knows."""

    #: time (s) that a call may wait before it is begun; inf: no model's times are known
    patience_s: Callable[[], float]
    #: tenant of a header with a credential, where that was seen before; else ""
    tenant_of: Callable[[bytes, bytes], str]
    #: route of a call's path; None: another request
    route_of: Callable[[str], str | None]


NO_REFUSALS = Policy(lambda: inf, lambda name, credential: "", lambda path: None)
"""Requests wait for their turn, however long it takes."""


class Waiting(Protocol):
    """Connection whose next request may have to wait."""

    transport: asyncio.Transport
    arrived_s: float
    deferred: list[bytes]

    def at_rest(self) -> bool:
        """Returns True between two requests."""
        ...

    def read(self, data: bytes) -> None:
        """Parses what was received."""
        ...

    def write_refusal(self, status: int, rest: bytes) -> None:
        """Writes a response to a request that isn't parsed."""
        ...


class RequestTurns:
    """Requests of all connections of one process that are not begun yet."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._waiting: OrderedDict[str, deque[Waiting]] = OrderedDict()  # by tenant
        self._count = 0  # of those
        self._begun = 0  # in this turn of the loop
        self._turn_s = 0.0  # begin of this turn: the first request of it was read; 0: none was
        self._each_s = 0.0  # mean time in which requests that wait are begun, while some wait

    def receive(self, connection: Waiting, data: bytes) -> None:
        """Hands data to the parser of a connection, now or when it is its turn."""
        if not self._turn_s:
            self._turn_s = clock.monotonic()
            asyncio.get_running_loop().call_soon(self._next_turn)
        if connection.deferred:
            self._hold(connection, data)
            return
        connection.arrived_s = self._turn_s
        if not connection.at_rest():
            connection.read(data)
        elif self._begun < BEGUN and not self._waiting:
            self._begun += 1
            connection.read(data)
        else:
            connection.deferred.append(data)
            self._waiting.setdefault(self._tenant(data), deque()).append(connection)
            self._count += 1

    def longest_wait_s(self) -> float:
        """Returns the time for which the first of the requests that wait has done so; 0: none."""
        now_s = clock.monotonic()
        return max((now_s - each[0].arrived_s for each in self._waiting.values()), default=0.0)

    def _hold(self, connection: Waiting, data: bytes) -> None:
        connection.deferred.append(data)
        if sum(map(len, connection.deferred)) > _HELD_BYTES:
            connection.transport.pause_reading()

    def _tenant(self, data: bytes) -> str:
        found = _CREDENTIAL.search(data)
        return self._policy.tenant_of(found[1].lower(), found[2]) if found else ""

    def _next_turn(self) -> None:
        """Begins requests that wait; runs once in each turn of the loop while there are any."""
        if not self._waiting:
            # What the last burst cost, its connections too, says nothing of the next.
            self._begun, self._turn_s, self._each_s = 0, 0.0, 0.0
            return
        now_s = clock.monotonic()
        if self._begun:
            took_s = (now_s - self._turn_s) / self._begun
            self._each_s += (took_s - self._each_s) * (_SMOOTHING if self._each_s else 1.0)
        self._begun, self._turn_s, refused = 0, 0.0, 0
        patience_s = self._policy.patience_s()
        while self._waiting and self._begun < BEGUN and refused < self._most_refused:
            connection, others = self._next()
            late = others and now_s - connection.arrived_s > patience_s
            if late and self._refuse(connection, now_s):
                refused += 1
            else:
                self._begin(connection)
        if self._each_s and patience_s < inf:
            excess = self._count - int(patience_s / self._each_s)
            self._refuse_newest(min(excess, self._most_refused - refused), now_s)
        if self._waiting or self._begun:
            self._turn_s = now_s
            asyncio.get_running_loop().call_soon(self._next_turn)

    @property
    def _most_refused(self) -> int:
        return _BESIDE if self._begun else _REFUSED

    def _next(self) -> tuple[Waiting, bool]:
        """Takes the request that has waited longest, of the tenant whose turn it is. Returns it,
        and True if others of its tenant wait: one that is alone isn't why it would be late."""
        tenant, queue = self._waiting.popitem(last=False)
        connection = queue.popleft()
        self._count -= 1
        if queue:
            self._waiting[tenant] = queue  # behind the others
        return connection, bool(queue)

    def _begin(self, connection: Waiting) -> None:
        data = b"".join(connection.deferred)
        connection.deferred.clear()
        if connection.transport.is_closing():
            return
        self._begun += 1
        if len(data) > _HELD_BYTES:
            connection.transport.resume_reading()
        connection.read(data)

    def _refuse_newest(self, count: int, now_s: float) -> None:
        """Refuses calls that will wait too long, of the tenants that have the most waiting."""
        while count > 0 and self._waiting:
            tenant = max(self._waiting, key=lambda each: len(self._waiting[each]))
            queue = self._waiting[tenant]
            for connection in [queue.pop() for _ in range(min(len(queue), _AT_ONCE, count))]:
                if self._refuse(connection, now_s):
                    self._count -= 1
                else:
                    queue.appendleft(connection)  # no call: it is begun
            count -= _AT_ONCE
            if not queue:
                del self._waiting[tenant]

    def _refuse(self, connection: Waiting, now_s: float) -> bool:
        """Refuses a whole call that can't be in time. Returns False for any other request."""
        [data, *more] = connection.deferred
        path = None if more else _path_of_whole_call(data)
        route = path and self._policy.route_of(path)
        if not path or not route:
            return False
        connection.deferred.clear()
        if not connection.transport.is_closing():
            wait_ms = max(now_s - connection.arrived_s, self._count * self._each_s) * 1000
            retry_ms = _ROUNDED_MS * round(retry_delay_s(wait_ms) * 1000 / _ROUNDED_MS)
            status, rest = _refusal(path, retry_ms)
            rest = rest.replace(_ID.encode(), new_request_id().encode())
            connection.write_refusal(status, rest)
            record.request("POST", route, status, None)
        return True


def _path_of_whole_call(data: bytes) -> str | None:
    """Returns the path of a POST that came in one piece and needs no more than an answer."""
    line = _REQUEST_LINE.match(data)
    end = data.find(b"\r\n\r\n")
    length = _LENGTH.search(data, 0, end + 2)
    if not line or not length or end + 4 + int(length[1]) != len(data):
        return None
    return None if _PARSED.search(data, 0, end) else line[1].decode("latin-1")


@lru_cache(maxsize=1024)
def _refusal(path: str, retry_ms: int) -> tuple[int, bytes]:
    """Returns status, own headers and body of a refusal, with an id to replace."""
    message = "more calls come than this api can begin in time; send it again after Retry-After"
    response = problem_response(TooLate(message, retry_after_s=retry_ms / 1000), _ID, path)
    return response.status_code, encode_head(response.raw_headers) + b"\r\n" + bytes(response.body)
