"""A stream ends with its credential: broken off, so that nobody takes what came for all."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from api.app import create_app
from api.http import authorized_stream
from api.middleware.fast_path import FastPath
from api.services.turns import TenantTurns
from jobs import ids
from jobs.models.builtin_models import SAMPLES
from jobs.settings import Settings
from jobs.store.tenants import api_keys
from jobs.usecases.submit import Order, submit
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


def results(url: str, database: Engine, key: str) -> str:
    return f"/jobs/{_job(database)}/results"


def events(url: str, database: Engine, key: str) -> str:
    return f"/jobs/{_job(database)}/events"


def message_batch_results(url: str, database: Engine, key: str) -> str:
    id = _job(database, dialect="anthropic").removeprefix("job_")
    return f"/v1/messages/batches/msgbatch_{id}/results"


def file_content(url: str, database: Engine, key: str) -> str:
    made = httpx.post(
        f"{url}/v1/files",
        headers={"Authorization": f"Bearer {key}"},
        files={"file": ("in.jsonl", b'{"custom_id": "a"}\n')},
        data={"purpose": "batch"},
    )
    assert made.status_code == 200, made.text
    return f"/v1/files/{made.json()['id']}/content"


def live_page(url: str, database: Engine, key: str) -> str:
    return "/dashboard/jobs"


def _job(database: Engine, **more: Any) -> str:
    return ids.show("job", submit(database, SAMPLES, "acme", Order("echo"), array=["x"], **more).id)


@pytest.mark.parametrize("path", [results, message_batch_results, file_content, events, live_page])
def test_a_stream_is_broken_off_once_its_key_is_revoked(
    url: str, database: Engine, path: Callable[[str, Engine, str], str]
) -> None:
    key, id = make_key(database)
    headers = {"Authorization": f"Bearer {key}"}
    if path is live_page:
        headers["Accept"] = "text/event-stream"
    with httpx.stream("GET", url + path(url, database, key), headers=headers, timeout=60) as answer:
        pieces = answer.iter_raw()
        assert answer.status_code == 200
        assert next(pieces)
        transact(database, api_keys.revoke, "acme", ids.parse("key", id))
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)


def test_a_stream_is_broken_off_once_its_key_expires(url: str, database: Engine) -> None:
    key, _ = make_key(database, ttl_s=3600)
    headers = {"Authorization": f"Bearer {key}"}
    path = results(url, database, key)
    with httpx.stream("GET", url + path, headers=headers, timeout=60) as answer:
        pieces = answer.iter_raw()
        assert next(pieces)
        execute(database, "UPDATE api_keys SET expires_at = now()")
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)
