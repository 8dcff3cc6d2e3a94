"""Bodies on their way in: what each tenant, and all together, may have of disk and memory."""

import re
import select
import shutil
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import Engine

from api.app import create_app
from api.context import Context
from api.middleware.fast_path import FastPath
from api.services.intake import free_space, upload_meter
from api.services.intake.upload_meter import UploadMeter
from jobs import clock
from jobs.errors import Overloaded
from jobs.identity import Caller, Limit
from jobs.settings import Settings
from jobs.store.tenants import limits
from tests.support.keys import make_key
from tests.support.servers.api_server import serving
from tests.support.stores.transactions import transact
from tests.support.wait import PATIENCE_S, eventually, pause

_MIB = 1 << 20
_PIECE = 1 << 17  # more than an upload has before it counts
_BOUNDARY = b"--b\r\n"
_FILE = (
    _BOUNDARY + b'Content-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    + _BOUNDARY + b'Content-Disposition: form-data; name="file"; filename="in"\r\n\r\n'
)  # fmt: skip


@dataclass
class Api:
    """An api of this process, and two tenants' keys."""

    app: FastAPI
    port: int
    key: str  #: of acme, which may store 10 MiB
    other: str  #: of a tenant without a limit
    counted: Counter[str]  #: bytes of uploads that have come in, by tenant

    @contextmanager
    def upload(self, path: str, media_type: str, size: int, key: str = "") -> Iterator["Upload"]:
        """Yields a request whose body is on its way."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as client:
            head = (
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
                f"{key or self.key}\r\nContent-Type: {media_type}\r\nContent-Length: {size}\r\n\r\n"
            )
            client.sendall(head.encode())
            tenant = "other" if key == self.other else "acme"
            yield Upload(client, lambda: self.counted[tenant])

    def file(self, size: int, key: str = "") -> Any:
        """The same, of a file."""
        return self.upload("/v1/files", "multipart/form-data; boundary=b", size, key)

    def post(self, path: str, body: bytes, key: str = "", **headers: str) -> httpx.Response:
        headers |= {"Authorization": f"Bearer {key or self.key}"}
        return httpx.post(f"http://127.0.0.1:{self.port}{path}", content=body, headers=headers)


class Upload:
    """Client's side of a request."""

    def __init__(self, client: socket.socket, counted: Callable[[], int]) -> None:
        self._client, self._counted = client, counted
        self.sent = 0

    def send(self, piece: bytes) -> None:
        self._client.sendall(piece)
        self.sent += len(piece)

    def send_until_answered(self, most: int) -> bytes:
        """Sends up to so many bytes, each piece once the one before has come in; returns what is
        answered before that, or b""."""
        while self.sent < most and not self._is_answered():
            before = self._counted()
            with suppress(OSError):
                self.send(bytes(_PIECE))
            eventually(lambda: self._counted() > before or self._is_answered())  # noqa: B023
        return self.answer() if self._is_answered() else b""

    def _is_answered(self) -> bool:
        return bool(select.select([self._client], [], [], 0)[0])

    def answer(self) -> bytes:
        """The whole answer, once it has come."""
        answer = b""
        while not _is_whole(answer):
            answer += self._client.recv(1 << 16)
        return answer


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    [size] = re.findall(rb"content-length: (\d+)", head) or [b"0"]
    return bool(end) and len(body) >= int(size)


@pytest.fixture
def serve(
    settings: Settings, database: Engine, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    @contextmanager
    def start(**changes: Any) -> Iterator[Api]:
        keys = [make_key(database, tenant)[0] for tenant in ("acme", "other")]
        transact(database, limits.put, "acme", [Limit(stored_bytes=10 * _MIB)])
        app = create_app(settings.evolve(**changes))
        with serving(FastPath(app), lifespan="on") as port:
            yield Api(app, port, *keys, counted)

    counted, add = Counter[str](), UploadMeter.add

    async def count(meter: UploadMeter, caller: Caller, size: int, part: int) -> None:
        await add(meter, caller, size, part)
        counted[caller.tenant] += size

    monkeypatch.setattr(UploadMeter, "add", count)
    monkeypatch.setattr(upload_meter, "LOOK_BYTES", _MIB)
    return start


def test_uploads_of_a_tenant_that_pass_its_quota_together_end_as_they_come_in(
    serve: Callable[..., Any],
) -> None:
    with serve() as api, api.file(9 * _MIB) as first, api.file(9 * _MIB) as second:
        first.send(_FILE)
        second.send(_FILE)
        assert first.send_until_answered(6 * _MIB) == b""
        answer = second.send_until_answered(9 * _MIB - 1)
        assert b" 429 " in answer
        assert b"there is no room for" in answer
        assert second.sent < 6 * _MIB
        with api.file(9 * _MIB, api.other) as one:
            one.send(_FILE)
            assert one.send_until_answered(6 * _MIB) == b""
        assert first.send_until_answered(7 * _MIB) == b""  # the other one no longer counts


def test_an_upload_ends_where_the_disk_reaches_its_floor(
    serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    free = (256 + 4) * _MIB
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free, total=1 << 40))
    monkeypatch.setattr(free_space, "_EVERY_S", 3600.0)  # one look: at the start
    upload: Any = "/jobs?model=echo", "application/x-ndjson", 64 * _MIB
    with (
        serve() as api,
        api.upload(*upload, api.other) as first,
        api.upload(*upload, api.other) as second,
    ):
        assert first.send_until_answered(3 * _MIB) == b""
        answer = second.send_until_answered(63 * _MIB)
        assert b" 507 " in answer
        assert b"MILLRACE_MIN_FREE_MB" in answer
        assert second.sent < 3 * _MIB
        assert b" 507 " in first.send_until_answered(63 * _MIB)


def test_bodies_of_calls_share_the_memory_of_a_process(serve: Callable[..., Any]) -> None:
    body = b'{"model": "none", "timeout_ms": 60000, "input": "%b"}' % (b"x" * 300_000)
    head = {"Content-Type": "application/json"}
    with serve(max_bodies_mb=1) as api:
        for _ in range(5):  # each is taken off at its end
            assert api.post("/infer", body, **head).status_code == 404
        assert api.post("/infer", body * 2, **head).status_code == 503  # half is for other tenants
        with api.upload("/infer", "application/json", len(body)) as slow:
            slow.send(body[:-1])
            held = api.app.state.context.call_bodies
            eventually(lambda: held.held("acme") > 200_000)
            refusal = api.post("/infer", body, **head)
            assert (refusal.status_code, refusal.json()["code"]) == (503, Overloaded.code)
            assert refusal.headers["retry-after"]
            assert api.post("/infer", body, api.other, **head).status_code == 404
            assert api.post("/infer", b'{"model": "none", "input": 1}', **head).status_code == 404
            slow.send(body[-1:])
            assert b" 404 " in slow.answer()
        eventually(lambda: held.held("acme") == 0)


_TENSOR = b'{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["x"]}'


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/infer", b'{"model": "echo", "input": "x"}'),
        ("/v2/models/echo/infer", b'{"inputs": [%b]}' % _TENSOR),
    ],
)
def test_a_slow_upload_is_no_latency_of_the_platform(
    serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, path: str, body: bytes
) -> None:
    began: list[float] = []

    def session(*given: Any, **more: Any) -> Any:
        began.extend(value for value in given if isinstance(value, float))
        raise Overloaded("seen")

    monkeypatch.setattr(Context, "inference_session", session)
    with serve() as api, api.upload(path, "application/json", len(body)) as slow:
        slow.send(body[:-1])
        pause(0.3)
        last_s = clock.monotonic()
        slow.send(body[-1:])
        assert b" 503 " in slow.answer()
    assert began[0] >= last_s
