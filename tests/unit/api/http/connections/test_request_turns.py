"""Turns of requests that come faster than an api can begin them."""

import asyncio
from math import inf
from typing import Any

import pytest

from api.compat.openai.errors import as_openai
from api.http import errors
from api.http.connections.request_turns import BEGUN, Policy, RequestTurns
from tests.support.cases import each

BODY = b'{"model":"echo","input":"x"}'


def call(tenant: str = "", path: str = "/infer", more: str = "", body: bytes = BODY) -> bytes:
    credential = f"Authorization: Bearer {tenant}\r\n" if tenant else ""
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\n{credential}{more}Content-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


class Connection:
    """One that notes what it is handed; each request is answered at once."""

    def __init__(self, log: list[tuple[str, bytes]]) -> None:
        self.transport: Any = self
        self.arrived_s = 0.0
        self.deferred: list[bytes] = []
        self.log, self.resting, self.paused = log, True, False

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def at_rest(self) -> bool:
        return self.resting

    def read(self, data: bytes) -> None:
        self.log.append(("read", data))

    def write_refusal(self, status: int, rest: bytes) -> None:
        self.log.append((f"refused {status}", rest))


class Requests:
    """Turns, and requests that come on connections of their own."""

    def __init__(self, patience_s: float = inf) -> None:
        self.patience_s = patience_s
        route_of = {"/infer": "/infer", "/v1/chat/completions": "/v1/chat/completions"}.get
        policy = Policy(lambda: self.patience_s, self._tenant, route_of)
        self.turns, self.log = RequestTurns(policy), list[tuple[str, bytes]]()

    def _tenant(self, header: bytes, value: bytes) -> str:
        return value.decode().removeprefix("Bearer ")

    def come(self, *datas: bytes) -> list[Connection]:
        made = [Connection(self.log) for _ in datas]
        for connection, data in zip(made, datas, strict=True):
            self.turns.receive(connection, data)
        return made

    @property
    def read(self) -> list[bytes]:
        return [data for outcome, data in self.log if outcome == "read"]

    @property
    def refused(self) -> list[tuple[str, bytes]]:
        return [pair for pair in self.log if pair[0] != "read"]


pytestmark = pytest.mark.anyio


async def turn() -> None:
    await asyncio.sleep(0)


async def test_a_turn_of_the_loop_begins_a_few_requests_and_the_next_one_those_that_wait() -> None:
    requests = Requests()
    datas = [call(body=b"%d" % n) for n in range(BEGUN + 3)]
    requests.come(*datas)
    assert requests.read == datas[:BEGUN]
    await turn()
    assert requests.read == datas
    await turn()
    await turn()
    later = [call(body=b"later %d" % n) for n in range(BEGUN)]
    requests.come(*later)
    assert requests.read == datas + later


async def test_the_longest_wait_is_that_of_the_first_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests, now_s = Requests(), 100.0
    monkeypatch.setattr("jobs.clock.monotonic", lambda: now_s)
    requests.come(*[call() for _ in range(BEGUN)])
    assert requests.turns.longest_wait_s() == 0.0
    requests.come(call("a"), call("b"))
    now_s = 103.0
    assert requests.turns.longest_wait_s() == 3.0
    await turn()
    assert requests.turns.longest_wait_s() == 0.0


async def test_tenants_take_turns_and_those_of_one_come_in_order() -> None:
    requests = Requests()
    requests.come(*[call("flood") for _ in range(BEGUN + 40)], call("light"))
    await turn()
    assert requests.read.index(call("light")) == BEGUN + 1


async def test_data_that_follows_what_waits_stays_behind_it() -> None:
    requests = Requests()
    requests.come(*[call() for _ in range(BEGUN)])
    [slow] = requests.come(call(body=b"x" * 70_000)[:100])
    requests.turns.receive(slow, b"y" * 70_000)
    assert slow.paused
    await turn()
    assert requests.read[BEGUN:] == [call(body=b"x" * 70_000)[:100] + b"y" * 70_000]
    assert not slow.paused
    slow.resting = False
    requests.come(*[call() for _ in range(BEGUN + 1)])
    requests.turns.receive(slow, b"rest of a body")
    assert requests.read[-1] == b"rest of a body"


async def test_a_call_that_has_waited_too_long_is_refused_in_the_format_of_its_api(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(errors.ERROR_FORMATS, "/v1", ("application/json", as_openai))
    requests = Requests(patience_s=-1.0)  # none may wait at all
    late = call(), call(path="/v1/chat/completions")
    requests.come(*[call() for _ in range(BEGUN)], *late, call("light"), call())
    await turn()
    assert requests.read[BEGUN:] == [call("light"), call()]  # each is alone of its tenant
    found = dict(zip(("native", "theirs"), sorted(requests.refused, key=_is_theirs), strict=True))
    assert {status for status, _ in found.values()} == {"refused 429"}
    head, _, body = found["native"][1].partition(b"\r\n\r\n")
    assert b"retry-after:" in head.lower()
    assert b"content-length: %d" % len(body) in head.lower()
    assert b'"code":"predicted_wait"' in body
    assert _is_theirs(found["theirs"])


def _is_theirs(refused: tuple[str, bytes]) -> bool:
    return b'"error":{' in refused[1]


async def test_ids_of_refusals_differ() -> None:
    requests = Requests(patience_s=-1.0)
    requests.come(*[call() for _ in range(BEGUN + 51)])
    await turn()
    assert len({body for _, body in requests.refused}) == 50


async def test_only_whole_calls_are_refused() -> None:
    others = (
        call(path="/jobs"),
        call().replace(b"POST", b"GET"),
        call()[:-1],
        call() + call(),
        call(more="Last-Event-ID: call_1:5\r\n"),
        call(more="Expect: 100-continue\r\n"),
        call(more="Connection: close\r\n"),
        call().replace(b"Content-Length", b"Transfer-Encoding: chunked\r\nX-Length"),
    )
    for data, case in each(others, name=bytes.decode):
        with case:
            requests = Requests(patience_s=-1.0)
            requests.come(*[call() for _ in range(BEGUN)], data, data)
            await turn()
            assert requests.refused == []
            assert requests.read[BEGUN:] == [data, data]


async def test_the_newest_calls_of_the_largest_tenant_are_refused_before_they_wait_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr("jobs.clock.monotonic", lambda: now_s)
    requests = Requests(patience_s=1.0)
    small = [call("small", body=b"%d" % n) for n in range(20)]
    jobs = [call("flood", path="/jobs", body=b"%d" % n) for n in range(3)]
    requests.come(*[call("flood", body=b"%d" % n) for n in range(500)], *jobs, *small)
    for _ in range(40):
        now_s += BEGUN * 0.01  # 10 ms each: a hundred in a second
        await turn()
    assert len(requests.read) + len(requests.refused) == 523
    assert len(requests.refused) > 300
    assert set(small) | set(jobs) <= set(requests.read)
    assert requests.read.index(jobs[0]) < 4 * BEGUN  # what isn't refused is begun soon
    assert requests.read.index(small[-1]) < 4 * BEGUN
