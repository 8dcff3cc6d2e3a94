"""Calls don't pass through FastAPI, and nothing is missing on their way."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from fastapi import FastAPI

from api.gateway.model_status import ModelStatuses
from api.gateway.response_cache import ResponseCache
from api.gateway.routing.router import Router
from api.middleware.fast_path import FastPath
from api.routes import calls
from api.services.intake.call_bodies import CallBodies
from jobs.identity import OPEN, Caller
from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Model
from jobs.settings import Settings
from tests.support.cases import each


async def _choose(versions: Sequence[Model]) -> Model:
    return versions[0]


async def _recognize(headers: Sequence[tuple[bytes, bytes]]) -> Caller:
    """Everybody, where no key was sent; else who may read."""
    sent = dict(headers).get(b"x-api-key")
    return replace(OPEN, scopes=frozenset({"read"})) if sent else OPEN


CONTEXT = SimpleNamespace(
    settings=Settings(),
    models_of=lambda tenant: SAMPLES,
    models=SAMPLES,
    call_bodies=CallBodies(1 << 30),
    router=Router(cast(ModelStatuses, SimpleNamespace(choose=_choose)), cast(ResponseCache, None)),
    authenticator=SimpleNamespace(authenticate=_recognize),
)


def post(
    *messages: Mapping[str, Any],
    context: object = CONTEXT,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, dict[str, Any]]:
    """Status and body of what is answered."""
    fields = {"content-type": "application/json"} if headers is None else headers
    scope = {
        "type": "http",
        "method": "POST",
        "path": calls.PATH,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
    }
    received, sent = list(messages), list[Any]()

    async def receive() -> Any:
        return received.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    app = SimpleNamespace(state=SimpleNamespace(context=context))
    asyncio.run(FastPath(cast(FastAPI, app))(scope, receive, send))
    start, body = sent
    assert (b"content-type", b"application/problem+json") in start["headers"]
    assert int(dict(start["headers"])[b"content-length"]) == len(body["body"])
    return start["status"], orjson.loads(body["body"])


def chunk(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def code(answer: tuple[int, dict[str, Any]]) -> tuple[int, str]:
    return answer[0], answer[1]["code"]


def test_what_nobody_expected_is_our_fault(caplog: pytest.LogCaptureFixture) -> None:
    body = b'{"model": "echo", "input": 1}'
    assert code(post(chunk(body), context=SimpleNamespace())) == (500, "internal")
    assert "unexpected" in caplog.text


def test_who_may_not_call_is_refused_unread() -> None:
    answer = post(headers={"content-type": "application/json", "x-api-key": "x"})
    assert code(answer) == (403, "forbidden")
    assert "infer" in answer[1]["detail"]


def test_a_body_may_come_in_pieces_but_not_end_early() -> None:
    answer = post(chunk(b'{"mod', True), chunk(b'el": "gone", ', True), chunk(b'"input": 1}'))
    assert code(answer) == (404, "unknown_model")
    assert code(post(chunk(b"{", True), {"type": "http.disconnect"})) == (400, "malformed")


def test_bodies_that_are_too_large_or_of_other_media_types_are_read_no_further() -> None:
    large = b"x" * (SAMPLES.max_line_bytes // 2 + 1)
    assert code(post(chunk(large, True), chunk(large, True))) == (413, "too_large")
    declared = {"content-type": "application/json", "content-length": "999999999999"}
    assert code(post(headers=declared)) == (413, "too_large")
    zipped = {"content-type": "application/json", "content-encoding": "br"}
    for headers in ({}, {"content-type": "text/plain"}, zipped):
        assert code(post(headers=headers)) == (415, "unsupported_media_type")


def test_what_is_wrong_with_a_call_is_named() -> None:
    wrong = {
        b'{"model": "echo", "input": 1, "class": "first"}': "class",
        b'{"model": "echo", "input": 1, "timeout_ms": 1.5}': "timeout_ms",
        b'{"model": "minilm", "input": {"input": "x"}}': "input",
        b'{"model": "minilm", "input": "a\\u0000"}': "input",
        b'{"model": "minilm", "input": "a", "params": {"truncate": 1}}': "params",
    }
    for body, case in each(wrong):
        with case:
            status, problem = post(chunk(body))
            assert (status, [fault["loc"] for fault in problem["errors"]]) == (422, [[wrong[body]]])
