"""Reads of another tenant's payloads are in the audit log, whichever route they take; reads of
one's own are not."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import orjson
import pytest
from fastapi import Request
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from sqlalchemy import Engine, text
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from api.app import create_app
from api.auth import audit as recording
from api.dashboard.rendering import live_updates
from api.dashboard.rendering.live_updates import Handler
from jobs import clock, ids
from jobs.models.builtin_models import SAMPLES
from jobs.settings import Settings
from jobs.store.queue import claim, settle
from jobs.store.queue.settle import Result
from jobs.usecases.submit import Order, submit
from tests.support.keys import make_key
from tests.support.stores.transactions import execute, fetch

MARK = "only-acme-may-know"
NATIVE, OPENAI, ANTHROPIC = "native", "openai", "anthropic"
Shown = set[str]

#: Each route that shows an operator what another tenant handed in, or got.
SHOWING = {
    "GET /jobs",
    "GET /jobs/{job_id}",
    "GET /jobs/{job_id}/events",
    "GET /jobs/{job_id}/items/{seq}",
    "GET /jobs/{job_id}/results",
    "GET /v1/batches/{batch_id}",
    "GET /v1/messages/batches/{message_batch_id}/results",
    "GET /dashboard/jobs/{job_id}",
    "GET /dashboard/jobs/{job_id}/items/{seq}",
    "GET /dashboard/jobs/{job_id}/items/{seq}/{side}",
    "GET /dashboard/jobs/{job_id}/results",
}


class Platform:
    """An api, a key of each role, and three jobs of acme's, one for each API."""

    def __init__(self, client: TestClient, database: Engine) -> None:
        self.client, self.database = client, database
        paths = set(_paths(client.app.routes))  # type: ignore[attr-defined]
        self.routes = sorted(f"GET {path}" for path in paths)
        roles: dict[str, dict[str, Any]] = {
            "admin": {"tenant": "house", "role": "admin"},
            "operator": {"tenant": "house", "role": "operator"},
            "acme": {"tenant": "acme"},
            "chief": {"tenant": "acme", "role": "operator"},
            "mallory": {"tenant": "mallory"},
        }
        self.keys = {who: make_key(database, **rights) for who, rights in roles.items()}
        self.jobs = {dialect: self._job(dialect) for dialect in (NATIVE, OPENAI, ANTHROPIC)}
        stored = self.send(
            "acme", "POST", "/v1/files", files={"file": ("a.jsonl", MARK)},
            data={"purpose": "batch"},
        )  # fmt: skip
        self.file = stored.json()["id"]

    def send(self, who: str, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.keys[who][0]}", **more.pop("headers", {})}
        found: httpx.Response = self.client.request(
            method, path, headers=headers, follow_redirects=False, **more
        )
        return found

    def get(self, who: str, path: str, **headers: str) -> str:
        return self.send(who, "GET", path, headers=headers).text

    def entries(self, what: str = "payload.read") -> list[tuple[str, ...]]:
        """(tenant, actor, target, detail), oldest first."""
        query = "SELECT tenant_id, actor, target, detail FROM audit WHERE act = :act ORDER BY id"
        return [tuple(row) for row in fetch(self.database, query, {"act": what})]

    def path(self, template: str) -> str:
        """A path to something of acme's."""
        dialect = OPENAI if "{batch_id}" in template else NATIVE
        values = {
            "job_id": self.jobs[dialect],
            "batch_id": self.jobs[OPENAI],
            "message_batch_id": self.jobs[ANTHROPIC],
            "seq": "1",
            "side": "output",
            "file_id": self.file,
            "tenant": "acme",
            "model": "echo",
        }
        path = re.sub(r"\{(\w+)(:\w+)?\}", lambda name: values.get(name[1], "1"), template)
        return path + ("?tenant=*" if template == "/jobs" else "")

    def _job(self, dialect: str) -> str:
        """A job that ended: one item failed, the other succeeded."""
        order = Order("echo", metadata={"note": MARK})
        lines = [{"custom_id": f"{MARK}-{n}", "input": MARK} for n in range(2)]
        id = submit(self.database, SAMPLES, "acme", order, array=lines, dialect=dialect).id
        error = orjson.dumps({"code": "x", "message": MARK}).decode()
        output = orjson.dumps(MARK).decode()
        with self.database.begin() as tx:
            leases = claim.claim(tx, 1, {SAMPLES.resolve("echo"): 1000}, 60)
            rows = [
                Result(id, "acme", 0, "failed", 1, 1.0, None, None, error),
                Result(id, "acme", 1, "succeeded", 1, 1.0, None, output, None),
            ]
            settle.settle(tx, leases, rows)
            asked = {"endpoint": "/v1/embeddings", "completion_window": "1h", "model": "echo"}
            tx.execute(
                text("UPDATE jobs SET asked = :asked, source = :source WHERE id = :id"),
                {
                    "id": id,
                    "asked": orjson.dumps(asked).decode() if dialect != NATIVE else None,
                    "source": '{"file": "file_1"}' if dialect == OPENAI else None,
                },
            )
        return ids.show("job", id)


def _paths(routes: Iterable[BaseRoute]) -> Iterator[str]:
    """Templates of all GET routes."""
    for route in routes:
        if isinstance(route, APIRoute):
            if "GET" in (route.methods or ()):
                yield route.path
        elif hasattr(route, "original_router"):
            yield from _paths(route.original_router.routes)


@pytest.fixture
def platform(settings: Settings, database: Engine) -> Iterator[Platform]:
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield Platform(client, database)


def shown(
    platform: Platform, who: str, routes: Iterable[str] = SHOWING
) -> dict[str, list[tuple[str, ...]]]:
    """By route that shows MARK: the entries that its request made."""
    found = {}
    for template in (route.removeprefix("GET ") for route in routes):
        before = len(platform.entries())
        is_shown = MARK in platform.get(who, platform.path(template))
        made = platform.entries()[before:]
        if is_shown:
            found[f"GET {template}"] = made
        else:
            assert not made, template
    return found


def test_every_route_that_shows_payloads_to_an_operator_records_it(platform: Platform) -> None:
    found = shown(platform, "operator", platform.routes)
    assert found.keys() == SHOWING
    for route, entries in found.items():
        [(tenant, actor, target, detail)] = entries
        assert actor == platform.keys["operator"][1]
        about = {"seq": 1} if "{seq}" in route else {}
        assert orjson.loads(detail) == {"route": route, **about}
        assert (tenant, target in platform.jobs.values()) == (
            ("*", False) if route == "GET /jobs" else ("acme", True)
        )


@pytest.mark.parametrize("who", ["acme", "chief"])
def test_reads_of_ones_own_are_not_recorded(platform: Platform, who: str) -> None:
    """Whatever one's role."""
    file = "GET /v1/files/{file_id}/content"
    routes = SHOWING - {"GET /jobs"} | {file}
    assert shown(platform, who, routes).keys() == routes
    platform.get(who, "/jobs?tenant=acme")
    assert platform.entries() == []
    assert shown(platform, "operator", [file]) == {}


def test_what_is_refused_or_not_there_is_not_recorded(platform: Platform) -> None:
    assert shown(platform, "mallory") == {}
    job = platform.jobs[NATIVE]
    for path in (f"/jobs/{job}/items/9", f"/v1/batches/{job}", f"/v1/files/{platform.file}"):
        assert platform.send("operator", "GET", path).status_code == 404, path
    execute(platform.database, "UPDATE jobs SET results_pruned = true")
    assert platform.send("operator", "GET", f"/jobs/{job}/results").status_code == 410
    assert platform.entries() == []


def test_a_verb_is_one_entry(platform: Platform) -> None:
    job = platform.jobs[NATIVE]
    assert platform.send("operator", "POST", f"/jobs/{job}/cancel").status_code == 200
    batch = platform.jobs[OPENAI]
    assert platform.send("operator", "POST", f"/v1/batches/{batch}/cancel").is_success
    assert (platform.entries(), len(platform.entries("job.cancel"))) == ([], 2)


def test_a_list_of_one_tenants_jobs_names_it(platform: Platform) -> None:
    platform.get("operator", "/jobs?tenant=acme")
    [(tenant, _, target, _)] = platform.entries()
    assert (tenant, target) == ("acme", "jobs")


def test_nothing_is_sent_of_a_read_that_cannot_be_recorded(platform: Platform) -> None:
    with platform.database.begin() as tx:
        tx.execute(text("ALTER TABLE audit_chain ADD CONSTRAINT full_disk CHECK (n < 0) NOT VALID"))
    for route in SHOWING:
        path = platform.path(route.removeprefix("GET "))
        found = platform.send("operator", "GET", path)
        assert (found.status_code, MARK in found.text) == (500, False), route
    assert MARK in platform.get("acme", platform.path("/jobs/{job_id}"))


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds on the clock of the audit log. A live stream is its parts, rendered ten times."""
    now_s = [clock.monotonic()]

    class _Clock:
        @staticmethod
        def monotonic() -> float:
            return now_s[0]

    async def stream(request: Request, handle: Handler) -> Response:
        for _ in range(10):
            parts = await live_updates.render_parts(request, handle)
        return JSONResponse(parts)

    monkeypatch.setattr(live_updates, "stream", stream)
    monkeypatch.setattr(recording, "clock", _Clock)
    return now_s


def test_a_live_page_is_one_entry_a_minute(platform: Platform, times: list[float]) -> None:
    live = {"Accept": "text/event-stream"}
    path = f"/dashboard/jobs/{platform.jobs[NATIVE]}"
    for who in ("operator", "admin"):
        before = len(platform.entries())
        assert MARK in platform.get(who, path)
        assert MARK in platform.get(who, path, **live)
        assert len(platform.entries()) == before + 1  # the visit
        times[0] += 61
        assert MARK in platform.get(who, path, **live)
        assert len(platform.entries()) == before + 2
        assert MARK in platform.get(who, f"{path}?outcome=failed", **live)  # without its page
        assert len(platform.entries()) == before + 3
        assert MARK in platform.get(who, path)
        assert MARK in platform.get(who, path)
        assert len(platform.entries()) == before + 5  # a visit each


def test_a_live_page_without_entry_is_recorded_next(platform: Platform, times: list[float]) -> None:
    path = f"/dashboard/jobs/{platform.jobs[NATIVE]}"
    broken = "ALTER TABLE audit_chain ADD CONSTRAINT full_disk CHECK (n < 0) NOT VALID"
    execute(platform.database, broken)
    assert MARK not in platform.get("operator", path)
    execute(platform.database, "ALTER TABLE audit_chain DROP CONSTRAINT full_disk")
    assert MARK in platform.get("operator", path, Accept="text/event-stream")
    assert len(platform.entries()) == 1
