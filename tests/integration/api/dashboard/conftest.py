"""The dashboard of a real database, asked over HTTP as a browser asks, by people of each role."""

import html
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import httpx
import orjson
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from api.app import create_app
from api.middleware.fast_path import FastPath
from jobs import ids
from jobs.models.builtin_models import SAMPLES
from jobs.settings import Settings
from jobs.store.jobs import read, verbs
from jobs.store.queue import claim, settle
from jobs.store.queue.settle import Result
from jobs.usecases.submit import Order, submit
from tests.support.keys import make_key
from tests.support.stores.transactions import transact

XSS = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"
ROLES: dict[str, dict[str, Any]] = {
    "admin": {"tenant": "house", "role": "admin"},
    "operator": {"tenant": "house", "role": "operator"},
    "acme": {"tenant": "acme"},
    "reader": {"tenant": "acme", "scopes": frozenset({"read"})},
    "mallory": {"tenant": "mallory"},
}
TOKEN = re.compile(r'name="token" value="([^"]+)"')


class People:
    """One client for all of them; each has a key."""

    def __init__(self, client: TestClient, database: Engine) -> None:
        self.client = client
        self.keys = {name: make_key(database, **rights)[0] for name, rights in ROLES.items()}

    def get(self, who: str, path: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.keys[who]}"}
        found: httpx.Response = self.client.get(
            f"/dashboard{path}", headers=headers, follow_redirects=False, **more
        )
        return found

    def token(self, who: str) -> str:
        """Of their forms: the frame has one on every page."""
        found = TOKEN.search(self.get(who, "/jobs").text)
        assert found
        return html.unescape(found[1])

    def post(self, who: str, path: str, **form: Any) -> httpx.Response:
        headers = {
            "Authorization": f"Bearer {self.keys[who]}",
            "Sec-Fetch-Site": "same-origin",
        }
        data = {"token": self.token(who), **form}
        found: httpx.Response = self.client.post(
            f"/dashboard{path}", headers=headers, data=data, follow_redirects=False
        )
        return found


@pytest.fixture
def people(settings: Settings, database: Engine) -> Iterator[People]:
    with TestClient(FastPath(create_app(settings)), raise_server_exceptions=False) as client:
        yield People(client, database)


class Jobs:
    """Jobs of acme's, in each of the states that one can be brought to by hand."""

    def __init__(self, database: Engine) -> None:
        self.database = database

    def post(self, tenant: str = "acme", items: int = 3, **order: Any) -> str:
        lines = [{"custom_id": f"row-{n}{XSS}", "input": f"{n} {XSS}"} for n in range(items)]
        shown = {"name": XSS, "labels": {"note": XSS}, "metadata": {"note": XSS}}
        asked = Order("echo", **{**shown, **order})
        return ids.show("job", submit(self.database, SAMPLES, tenant, asked, array=lines).id)

    def act(self, job_id: str, verb: str) -> str:
        transact(self.database, getattr(verbs, verb), self.uuid(job_id))
        return job_id

    def failed(self, **order: Any) -> str:
        """A job that ended: its first item failed, the others succeeded."""
        job_id = self.post(**order)
        error = orjson.dumps({"code": "too_long", "message": XSS}).decode()
        with self.database.begin() as tx:
            leases = [
                lease
                for lease in claim.claim(tx, 1, {SAMPLES.resolve("echo"): 1000}, 60)
                if lease.job_id == self.uuid(job_id)
            ]
            good = orjson.dumps(XSS).decode()
            ended = [(one, seq) for one in leases for seq in range(one.start, one.stop)]
            rows = [
                Result(one.job_id, one.tenant, seq, "succeeded", 1, 1.0, None, good, None)
                if seq
                else Result(one.job_id, one.tenant, seq, "failed", 1, 1.0, None, None, error)
                for one, seq in ended
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
