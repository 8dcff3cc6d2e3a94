"""The api on a real database, asked over HTTP by people of each role, as a browser asks too."""

import html
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import httpx
import orjson
import pytest
from fastapi import Request
from fastapi.testclient import TestClient
from sqlalchemy import Engine
from starlette.responses import JSONResponse, Response

from api.app import create_app
from api.dashboard.rendering import live_updates
from api.dashboard.rendering.live_updates import Handler
from api.middleware.fast_path import FastPath
from jobs import ids
from jobs.models.builtin_models import SAMPLES
from jobs.settings import Settings
from jobs.store.jobs import read, verbs
from jobs.store.queue import claim, settle, workers
from jobs.store.queue.settle import Result
from jobs.usecases.submit import Order, submit
from tests.support.keys import make_key
from tests.support.stores.transactions import transact

XSS = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"
ROLES: dict[str, dict[str, Any]] = {
    "admin": {"tenant": "house", "role": "admin"},
    "operator": {"tenant": "house", "role": "operator"},
    "watcher": {"tenant": "house", "role": "operator", "scopes": frozenset({"read"})},
    "acme": {"tenant": "acme"},
    "chief": {"tenant": "acme", "role": "operator"},
    "reader": {"tenant": "acme", "scopes": frozenset({"read"})},
    "mallory": {"tenant": "mallory"},
}
TOKEN = re.compile(r'name="token" value="([^"]+)"')


class People:
    """One client for all of them; each has a key."""

    def __init__(self, client: TestClient, database: Engine) -> None:
        self.client, self.database = client, database
        made = {name: make_key(database, **rights) for name, rights in ROLES.items()}
        self.keys = {name: key for name, (key, _) in made.items()}
        self.ids = {name: id for name, (_, id) in made.items()}

    def send(self, who: str, method: str, path: str, **more: Any) -> httpx.Response:
        """Sends a request with their key."""
        headers = {"Authorization": f"Bearer {self.keys[who]}", **more.pop("headers", {})}
        found: httpx.Response = self.client.request(
            method, path, headers=headers, follow_redirects=False, **more
        )
        return found

    def ask(self, who: str, path: str, **query: Any) -> httpx.Response:
        """Reads something of the API."""
        return self.send(who, "GET", path, params=query or None)

    def get(self, who: str, path: str, **more: Any) -> httpx.Response:
        """Asks for a page of the dashboard."""
        return self.send(who, "GET", f"/dashboard{path}", **more)

    def page(self, who: str, path: str, **more: Any) -> str:
        """Returns a page that is there."""
        found = self.get(who, path, **more)
        assert found.status_code == 200, (path, found.text)
        return found.text

    def token(self, who: str) -> str:
        """Returns the token of their forms: the frame has one on every page."""
        return token_of(self.page(who, "/jobs"))

    def post(
        self, who: str, path: str, *, site: str = "same-origin", accept: str = "*/*",
        files: Any = None, **form: str,
    ) -> httpx.Response:  # fmt: skip
        """Sends a form, with the token of their forms where it has none."""
        headers = {"Sec-Fetch-Site": site, "Accept": accept}
        data = form if "token" in form else {"token": self.token(who), **form}
        return self.send(who, "POST", f"/dashboard{path}", headers=headers, data=data, files=files)


def token_of(page: str) -> str:
    found = TOKEN.search(page)
    assert found
    return html.unescape(found[1])


@pytest.fixture
def people(settings: Settings, database: Engine) -> Iterator[People]:
    with TestClient(FastPath(create_app(settings)), raise_server_exceptions=False) as client:
        yield People(client, database)


class Jobs:
    """Jobs of acme's, in each of the states that one can be brought to by hand."""

    def __init__(self, database: Engine) -> None:
        self.database = database

    def post(
        self, tenant: str = "acme", items: int = 3, text: str = XSS, dialect: str = "native",
        **order: Any,
    ) -> str:  # fmt: skip
        """Submits a job that has a text in all its parts."""
        lines = [{"custom_id": f"row-{n}{text}", "input": f"{n} {text}"} for n in range(items)]
        asked = {"name": text, "labels": {"note": text}, "metadata": {"note": text}, **order}
        made = submit(
            self.database, SAMPLES, tenant, Order("echo", **asked), array=lines, dialect=dialect
        )
        return ids.show("job", made.id)

    def act(self, job_id: str, verb: str) -> str:
        transact(self.database, getattr(verbs, verb), self.uuid(job_id))
        return job_id

    def failed(self, text: str = XSS, **order: Any) -> str:
        """A job that ended: its first item failed, the others succeeded."""
        job_id = self.post(text=text, **order)
        error = orjson.dumps({"code": "too_long", "message": text}).decode()
        with self.database.begin() as tx:
            claimed = claim.claim(tx, 1, {SAMPLES.resolve("echo"): 1000}, 60)
            leases = [lease for lease in claimed if lease.job_id == self.uuid(job_id)]
            ends = ("failed", None, error), ("succeeded", orjson.dumps(text).decode(), None)
            rows = [
                Result(one.job_id, one.tenant, seq, outcome, 1, 1.0, None, output, error)
                for one in leases
                for seq in range(one.start, one.stop)
                for outcome, output, error in [ends[seq > 0]]
            ]
            settle.settle(tx, leases, rows)
        return job_id

    @staticmethod
    def uuid(job_id: str) -> UUID:
        found = ids.parse("job", job_id)
        assert found
        return found

    def state(self, job_id: str) -> str:
        with self.database.begin() as tx:
            tenant = read.owner(tx, self.uuid(job_id))
            assert tenant
            return str(read.one(tx, tenant, self.uuid(job_id)).state)


@pytest.fixture
def jobs(database: Engine) -> Jobs:
    return Jobs(database)


@pytest.fixture
def worker(database: Engine) -> int:
    """The number of a worker of the pool "default"."""
    return transact(database, workers.register, "w", "default", "cpu", ["echo@1"])


@pytest.fixture
def parts_of_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """A live stream is its parts, rendered more often than a tenant may read at a time."""

    async def stream(request: Request, handle: Handler) -> Response:
        for _ in range(10):
            parts = await live_updates.render_parts(request, handle)
        return JSONResponse(parts)

    monkeypatch.setattr(live_updates, "stream", stream)
