"""Streams that are read on after their connection was lost: over a real socket and a real Redis."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from api.gateway.streaming import event_stream
from api.gateway.streaming.known_calls import KnownCalls
from jobs import ids
from jobs.calls.keys import reply_key
from jobs.calls.messages import Call, ChoiceDelta
from jobs.calls.streams.resumption import Attached
from tests.integration.api.generation.conftest import Stage
from tests.support import clients
from tests.support.clients import Event, bearer
from tests.support.generation.generation_worker import FakeGenerationWorker, completion
from tests.support.keys import make_key
from tests.support.wait import PATIENCE_S, eventually

CONVERSATION = {"messages": [{"role": "user", "content": "x"}]}
CHAT = {"model": "m", "stream": True, **CONVERSATION}
CALL = {"model": "m", "stream": True, "input": CONVERSATION}
TEXT = {"model": "m", "stream": True, "prompt": "x"}
MESSAGE = {"model": "m", "stream": True, "max_tokens": 9, **CONVERSATION}
ROUTES = [
    ("/infer", CALL),
    ("/v1/chat/completions", {**CHAT, "n": 2, "stream_options": {"include_usage": True}}),
    ("/v1/completions", TEXT),
    ("/v1/messages", MESSAGE),
]
STAYS = {"X-Millrace-Resume-Within": "60"}
WORDS = ["one", " two", " three", " four"]


def events(response: httpx.Response) -> Iterator[Event]:
    """The events of a stream, as they come, each with an id of its own or its call's."""
    return clients.events(response.iter_lines())


class Reader:
    """Reads streams of a stage."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    @contextmanager
    def open(self, path: str, body: Any, **headers: str) -> Iterator[httpx.Response]:
        """Opens a stream. body: None for GET."""
        method, url = ("GET" if body is None else "POST"), self.stage.url + path
        is_new = bool(body) and "Last-Event-ID" not in headers
        headers = {**self.stage.headers, **headers}
        with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
            if is_new:  # the worker takes it later: there is no use in waiting for its status
                patch.setattr(event_stream, "STATUS_WITHIN_S", 0.05)
            asked = httpx.stream(method, url, json=body, headers=headers, timeout=PATIENCE_S)
            response = stack.enter_context(asked)
            patch.undo()
            yield response

    @contextmanager
    def begun(self, words: int = 1, **headers: str) -> Iterator[tuple[Call, Iterator[Event]]]:
        """Opens a native stream that has so many words: (its call, its events)."""
        with self.open("/infer", CALL, **headers) as response:
            call = self.stage.worker.take()
            say(self.stage, call, WORDS[:words])
            assert response.status_code == 200
            yield call, events(response)

    def rest(self, path: str, body: Any, after: str = "") -> list[Event]:
        """Reads the rest of a stream to its end."""
        headers = {"Last-Event-ID": after} if after else {}
        with self.open(path, body, **headers) as response:
            assert response.status_code == 200, response.read()
            return list(events(response))


@pytest.fixture
def reader(stage: Stage) -> Reader:
    return Reader(stage)


def say(stage: Stage, call: Call, words: list[str], choices: int = 1) -> None:
    """Sends each word as a delta of all choices, and ends the call with the last word of all."""
    for word in words:
        n, finish = WORDS.index(word), "stop" if word == WORDS[-1] else None
        stage.worker.push(call, *(ChoiceDelta(c, word, (n,), (), finish) for c in range(choices)))
    if words[-1] == WORDS[-1]:
        chat = "messages" in call.input
        stage.worker.reply(call, completion("".join(WORDS), len(WORDS), chat=chat))


def undisturbed(reader: Reader, path: str, body: Any) -> list[Event]:
    """Reads a stream of WORDS, whose events have ids, to its end."""
    with reader.open(path, body, **STAYS) as response:
        say(reader.stage, reader.stage.worker.take(), WORDS, body.get("n", 1))
        return list(events(response))


def plain(found: list[Event], call_id: str) -> list[Event]:
    """Events without what differs between two calls: their ids, and times."""
    plain = []
    for id, name, data in found:
        data = json.loads(json.dumps(data).replace(call_id.removeprefix("call_"), "ID"))
        for key in ("timing", "created") if data else ():
            data.pop(key, None)
        plain.append(Event(id.removeprefix(call_id), name, data))
    return plain


def call_of(found: list[Event]) -> str:
    return found[-1].id.partition("/")[0]


@pytest.mark.parametrize(("path", "body"), ROUTES, ids=[path for path, _ in ROUTES])
def test_events_of_others_apis_have_ids_only_for_clients_that_come_back(
    reader: Reader, path: str, body: Any
) -> None:
    """LiteLLM's routes hosted_vllm and deepseek drop the usage from an event with an id."""
    with reader.open(path, body) as response:
        say(reader.stage, reader.stage.worker.take(), WORDS, body.get("n", 1))
        lines = list(response.iter_lines())
    ids = [line for line in lines if line.startswith("id:")]
    assert bool(ids) == (path == "/infer")
    assert len(ids) in (0, len(list(clients.events(iter(lines)))))


@pytest.mark.parametrize(("path", "body"), ROUTES, ids=[path for path, _ in ROUTES])
def test_a_stream_goes_on_after_any_of_its_events(reader: Reader, path: str, body: Any) -> None:
    """The call has ended by then: its log is still there."""
    whole = undisturbed(reader, path, body)
    call_id = call_of(whole)
    assert len({event.id for event in whole}) == len(whole)
    for n, event in enumerate(whole[:-1]):
        rest = reader.rest(path, body, event.id)
        assert plain(rest, call_id) == plain(whole[n + 1 :], call_id)
    ended = reader.stage.post(path, body, **{"Last-Event-ID": whole[-1].id})
    assert (ended.status_code, ended.content) == (204, b"")


@pytest.mark.parametrize(("path", "body"), ROUTES, ids=[path for path, _ in ROUTES])
def test_a_call_outlives_its_connection_as_one_stream(reader: Reader, path: str, body: Any) -> None:
    stage, choices = reader.stage, body.get("n", 1)
    whole = undisturbed(reader, path, body)
    with reader.open(path, body, **STAYS) as response:
        call = stage.worker.take()
        say(stage, call, WORDS[:2], choices)
        first = events(response)
        seen = [next(first)]
        while not seen[-1].id.endswith("/0"):
            seen.append(next(first))
    say(stage, call, WORDS[2:3], choices)
    with reader.open(path, body, **{"Last-Event-ID": seen[-1].id}) as response:
        say(stage, call, WORDS[3:], choices)
        seen += events(response)
    assert plain(seen, call.id) == plain(whole, call_of(whole))
    eventually(lambda: stage.in_flight == 0)
    assert stage.worker.cancelled() == []


def test_a_native_stream_is_read_from_its_start_or_after_an_event(reader: Reader) -> None:
    whole = undisturbed(reader, "/infer", CALL)
    call_id = call_of(whole)
    path = f"/calls/{call_id}/stream"
    assert plain(reader.rest(path, None), call_id) == plain(whole, call_id)
    assert plain(reader.rest(path, None, whole[1].id), call_id) == plain(whole[2:], call_id)


def test_a_stream_whose_end_comes_before_its_log_is_whole(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, attach = reader.stage, KnownCalls.attach

    async def slow(self: KnownCalls, model: Any, id: str, tenant: str, reply_to: str) -> Attached:
        """Returns what the script returned once the reply to the call has been read."""
        attached = await attach(self, model, id, tenant, reply_to)
        say(stage, call, WORDS[2:])
        while stage.redis.exists(reply_key(reply_to)):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        return attached

    monkeypatch.setattr(KnownCalls, "attach", slow)
    with reader.begun(2, **STAYS) as (call, found):
        id = next(found).id
    data = [event.data for event in reader.rest("/infer", CALL, id)]
    assert "".join(one.get("text", "") for one in data) == "".join(WORDS[1:])
    assert [one for one in data if "usage" in one] == data[-1:]


def test_a_native_stream_of_an_adapter_is_read_again_under_its_name(reader: Reader) -> None:
    stage = reader.stage
    worker = FakeGenerationWorker(stage.redis, "named@1")
    with reader.open("/infer", {**CALL, "model": "named:legal"}) as response:
        call = worker.take()
        worker.push(call, ChoiceDelta(0, "one", (0,), (), "stop"))
        assert response.status_code == 200
        with reader.open(f"/calls/{call.id}/stream", None) as newer:
            worker.reply(call, completion("one", 1))
            whole = list(events(newer))
    again = reader.rest(f"/calls/{call.id}/stream", None)  # once it has ended
    for found in (whole, again):
        assert found[-1].data["model"] == "named:legal"


def test_the_newer_of_two_connections_has_the_stream(reader: Reader) -> None:
    stage = reader.stage
    with reader.begun() as (call, older), reader.open(f"/calls/{call.id}/stream", None) as newer:
        assert "stream_moved" in str(list(older)[-1])
        say(stage, call, WORDS[1:])
        assert len(list(events(newer))) == len(WORDS) + 1
    assert stage.worker.cancelled() == []


def test_a_request_whose_client_has_left_takes_the_stream_from_nobody(reader: Reader) -> None:
    """An api that was stopped reads it late: the client has the stream elsewhere by then."""
    stage = reader.stage
    whole = undisturbed(reader, "/infer", CALL)
    with reader.begun(**STAYS) as (call, found):
        seen = [next(found)]
        head = "".join(f"{name}: {value}\r\n" for name, value in stage.headers.items())
        request = f"GET /calls/{call.id}/stream HTTP/1.1\r\nHost: x\r\n{head}\r\n"
        with stage.stopped():
            for _ in range(5):
                with socket.create_connection(("127.0.0.1", stage.port)) as given_up:
                    given_up.sendall(request.encode())
        assert stage.post("/infer", {**CALL, "model": "none"}).status_code == 404
        say(stage, call, WORDS[1:])
        seen += found
    assert plain(seen, call.id) == plain(whole, call_of(whole))


def test_a_call_whose_client_does_not_come_back_is_dropped(reader: Reader) -> None:
    stage = reader.stage
    with reader.begun(**{"X-Millrace-Resume-Within": "1"}) as (call, found):
        next(found)
    eventually(lambda: stage.worker.cancelled() == [call.id])
    eventually(lambda: stage.in_flight == 0)
    again = stage.post("/infer", CALL, **{"Last-Event-ID": f"{call.id}/0"})
    assert again.status_code == 404


def test_a_cancelled_call_ends_at_once(reader: Reader) -> None:
    stage = reader.stage
    with reader.begun(**STAYS) as (call, found):
        answer = stage.post(f"/calls/{call.id}/cancel", None)
        assert answer.json() == {"id": call.id, "outcome": "cancelled"}
        *_, last = found
    assert (last.id, last.data["code"]) == (f"{call.id}/0", "cancelled")
    eventually(lambda: stage.worker.cancelled() == [call.id])
    again = stage.post(f"/calls/{call.id}/cancel", None)
    assert (again.status_code, again.json()["code"]) == (404, "not_found")


def test_a_call_that_waits_can_be_cancelled(reader: Reader) -> None:
    stage = reader.stage
    with reader.open("/infer", CALL, **STAYS) as response:
        [waiting] = eventually(lambda: stage.redis.hkeys("millrace:{m@1}:calls"))
        call_id = waiting.decode()
        assert stage.post(f"/calls/{call_id}/cancel", None).status_code == 200
        [last] = events(response)
    assert (last.id, last.data["code"]) == (call_id, "cancelled")
    assert stage.worker.take_if_any() is None


@pytest.mark.parametrize("id", ["17", "job_01kajf7q5rf0h8zq2m4w6y8a0b/1", "call_x/1", "", "ü"])
def test_an_id_of_no_event_is_refused(stage: Stage, id: str) -> None:
    headers = [(b"Last-Event-ID", id.encode())]
    headers += [(name.encode(), value.encode()) for name, value in stage.headers.items()]
    found = httpx.post(f"{stage.url}/infer", json=CALL, headers=headers)
    assert (found.status_code, found.json()["code"]) == (400, "malformed")


@pytest.mark.parametrize("within", ["0", "301", "-1", "1.5", "soon"])
def test_a_time_out_of_bounds_is_refused(stage: Stage, within: str) -> None:
    found = stage.post("/infer", CALL, **{"X-Millrace-Resume-Within": within})
    assert (found.status_code, found.json()["code"]) == (400, "malformed")


def test_a_stream_of_another_tenant_is_not_there_at_all(reader: Reader, database: Engine) -> None:
    stage = reader.stage
    other = bearer(make_key(database, "mallory")[0])
    with reader.begun() as (call, found):
        for id in (call.id, ids.new_shown("call")):
            asked = httpx.get(f"{stage.url}/calls/{id}/stream", headers=other)
            cancelled = httpx.post(f"{stage.url}/calls/{id}/cancel", headers=other)
            again = {**other, "Last-Event-ID": f"{id}/0"}
            sent = httpx.post(f"{stage.url}/v1/chat/completions", json=CHAT, headers=again)
            assert [asked.status_code, cancelled.status_code, sent.status_code] == [404] * 3
        say(stage, call, WORDS[1:])
        assert len(list(found)) == len(WORDS) + 1
    assert httpx.get(f"{stage.url}/calls/{call.id}/stream", headers=other).status_code == 404
