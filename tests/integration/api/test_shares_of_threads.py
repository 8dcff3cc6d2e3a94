"""Routes of a tenant that take long leave threads and connections to others."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from api import app as api
from api.dependencies import Reader, Submitter
from api.http.errors import to_error
from api.services.turns import TenantTurns
from jobs.errors import Unavailable
from jobs.identity import OPEN, Caller
from jobs.settings import Settings
from ops.embedded.servers import EmbeddedServers
from tests.support.stores.transactions import scalar
from tests.support.wait import PATIENCE_S, eventually_async

pytestmark = pytest.mark.anyio


async def _recognize(headers: Sequence[tuple[bytes, bytes]]) -> Caller:
    """Everybody by name."""
    return replace(OPEN, tenant=dict(headers)[b"x-api-key"].decode())


class Routes:
    """Routes on threads: what runs now, and what ends it."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.end = threading.Event()
        self.app = FastAPI()
        self.app.state.context = SimpleNamespace(
            authenticator=SimpleNamespace(authenticate=_recognize), turns=TenantTurns(4, each=2)
        )
        self.app.get("/read")(self._read)
        self.app.post("/verb")(self._verb)
        self.app.get("/stream")(self._stream)

    def _read(self, caller: Reader) -> str:
        self.running.append(caller.tenant)
        assert self.end.wait(PATIENCE_S)
        return caller.tenant

    def _verb(self, caller: Submitter) -> str:
        return self._read(caller)

    def _stream(self, caller: Reader) -> StreamingResponse:
        self.running.append(caller.tenant)

        def pieces() -> Iterator[bytes]:
            yield b"first"
            assert self.end.wait(PATIENCE_S)
            yield b"last"

        return StreamingResponse(pieces())

    def client(self, tenant: str) -> httpx.AsyncClient:
        known: Any = {"base_url": "http://test", "headers": {"x-api-key": tenant}}
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), **known)


async def test_a_tenant_runs_as_many_at_a_time_as_are_its_part() -> None:
    routes = Routes()
    async with routes.client("a") as a, routes.client("b") as b:
        many = [asyncio.create_task(a.get("/read")) for _ in range(3)]
        many += [asyncio.create_task(a.post("/verb")) for _ in range(3)]
        await eventually_async(lambda: len(routes.running) == 2)
        one = asyncio.create_task(b.get("/read"))
        await eventually_async(lambda: "b" in routes.running)
        assert routes.running == ["a", "a", "b"]
        routes.end.set()
        answers = await asyncio.gather(one, *many)
    assert [answer.status_code for answer in answers] == [200] * 7


async def test_a_stream_that_is_open_holds_no_place() -> None:
    routes = Routes()
    async with routes.client("a") as a:
        streams: list[Any] = [asyncio.create_task(a.get("/stream")) for _ in range(5)]
        await eventually_async(lambda: len(routes.running) == 5)
        routes.end.set()
        answers = await asyncio.gather(*streams)
    assert {answer.text for answer in answers} == {"firstlast"}


def test_a_statement_of_the_api_ends_after_seconds(servers: EmbeddedServers) -> None:
    settings = Settings(database_url=servers.postgres.url, redis_url=servers.redis.url)
    database = api.build_context(settings).database
    try:
        assert scalar(database, "SHOW statement_timeout") == "10s"
        with database.connect() as tx:
            tx.execute(text("SET LOCAL statement_timeout = 1"))
            with pytest.raises(OperationalError) as caught:
                tx.execute(text("SELECT pg_sleep(10)"))
    finally:
        database.dispose()
    found = to_error(caught.value, "req")
    assert isinstance(found, Unavailable)
    assert "too long" in found.detail
