"""A stream ends with its credential: broken off, so that nobody takes what came for all."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.http import authorized_stream
from api.middleware.fast_path import FastPath
from api.services.turns import TenantTurns
from jobs import ids
from jobs.settings import Settings
from jobs.store.tenants import api_keys
from tests.integration.api.conftest import Jobs
from tests.support.cases import each
from tests.support.clients import bearer
from tests.support.keys import make_key
from tests.support.servers.api_server import serving
from tests.support.stores.transactions import execute, transact


@pytest.fixture
def url(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An api whose streams of results and files have a second byte that never comes."""

    async def pieces(self: TenantTurns, tenant: str, source: Any) -> AsyncIterator[bytes]:
        with closing(source):  # ends with the stream, as the real one's
            yield next(source, b"{")[:1]
            await asyncio.Event().wait()

    monkeypatch.setattr(TenantTurns, "pieces", pieces)
    monkeypatch.setattr(authorized_stream, "CHECK_S", 0.05)
    with serving(FastPath(create_app(settings))) as port:
        yield f"http://127.0.0.1:{port}"


def a_file(url: str, key: str) -> str:
    files = {"file": ("in.jsonl", b'{"custom_id": "a"}\n')}
    about = {"purpose": "batch"}
    made = httpx.post(f"{url}/v1/files", headers=bearer(key), files=files, data=about)
    assert made.status_code == 200, made.text
    return str(made.json()["id"])


def is_broken_off(url: str, key: str, end: Callable[[], object]) -> None:
    """Reads a stream that breaks off once something was done."""
    headers = bearer(key, Accept="text/event-stream") if "/dashboard" in url else bearer(key)
    with httpx.stream("GET", url, headers=headers, timeout=60) as answer:
        pieces = answer.iter_raw()
        assert answer.status_code == 200
        assert next(pieces)
        end()
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)


def test_a_stream_is_broken_off_once_its_key_is_revoked(url: str, jobs: Jobs) -> None:
    batch = jobs.post(dialect="anthropic").removeprefix("job_")
    file = a_file(url, make_key(jobs.database)[0])
    for path, case in each(
        [
            f"/jobs/{jobs.post()}/results",
            f"/v1/messages/batches/msgbatch_{batch}/results",
            f"/v1/files/{file}/content",
            f"/jobs/{jobs.post()}/events",
            "/dashboard/jobs",
        ]
    ):
        key, id = make_key(jobs.database)
        revoked = api_keys.revoke, "acme", ids.parse("key", id)
        with case:
            is_broken_off(url + path, key, partial(transact, jobs.database, *revoked))


def test_a_stream_is_broken_off_once_its_key_expires(url: str, jobs: Jobs) -> None:
    key, _ = make_key(jobs.database, ttl_s=3600)
    expire = "UPDATE api_keys SET expires_at = now()"
    path = f"/jobs/{jobs.post()}/results"
    is_broken_off(url + path, key, lambda: execute(jobs.database, expire))
