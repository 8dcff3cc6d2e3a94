"""Reads of another tenant's payloads are in the audit log, whichever route they take; reads of
one's own are not."""

import re
from collections.abc import Iterable, Iterator
from types import SimpleNamespace

import orjson
import pytest
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from api.app import create_app
from api.auth import audit as recording
from jobs import clock
from jobs.settings import Settings
from tests.integration.api.conftest import Jobs, People
from tests.support.stores.transactions import execute, fetch

MARK = "only-acme-may-know"
NATIVE, OPENAI, ANTHROPIC = "native", "openai", "anthropic"
FILL_DISK = "ALTER TABLE audit_chain ADD CONSTRAINT full_disk CHECK (n < 0) NOT VALID"

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


class Payloads:
    """Three jobs of acme's, one for each API, and a file."""

    def __init__(self, people: People) -> None:
        self.people, self.get = people, people.ask
        self.routes = sorted({*_paths(create_app(Settings()).routes)})
        made = {dialect: self._job(dialect) for dialect in (NATIVE, OPENAI, ANTHROPIC)}
        self.job, self.batch, message_batch = self.jobs = tuple(made.values())
        file = {"file": ("a.jsonl", MARK)}
        stored = people.send("acme", "POST", "/v1/files", files=file, data={"purpose": "batch"})
        self.file = stored.json()["id"]
        self._values = {
            "job_id": self.job, "batch_id": self.batch, "message_batch_id": message_batch,
            "seq": "1", "side": "output", "file_id": self.file, "tenant": "acme", "model": "echo",
        }  # fmt: skip

    def entries(self, what: str = "payload.read") -> list[tuple[str, ...]]:
        """(tenant, actor, target, detail), oldest first."""
        query = "SELECT tenant_id, actor, target, detail FROM audit WHERE act = :act ORDER BY id"
        return [tuple(row) for row in fetch(self.people.database, query, {"act": what})]

    def path(self, route: str) -> str:
        """A path to something of acme's."""
        template = route.removeprefix("GET ")
        path = re.sub(r"\{(\w+)(:\w+)?\}", lambda name: self._values.get(name[1], "1"), template)
        return path + ("?tenant=*" if template == "/jobs" else "")

    def shown(self, who: str, routes: Iterable[str] = SHOWING) -> dict[str, list[tuple[str, ...]]]:
        """By route that shows MARK: the entries that its request made."""
        found = {}
        for route in routes:
            before = len(self.entries())
            is_shown = MARK in self.get(who, self.path(route)).text
            made = self.entries()[before:]
            if is_shown:
                found[route] = made
            else:
                assert not made, route
        return found

    def _job(self, dialect: str) -> str:
        """A job that ended: one item failed, the other succeeded."""
        jobs = Jobs(self.people.database)
        id = jobs.failed(MARK, items=2, dialect=dialect, name=None, labels={})
        asked = {"endpoint": "/v1/embeddings", "completion_window": "1h", "model": "echo"}
        values = {
            "id": jobs.uuid(id),
            "asked": orjson.dumps(asked).decode() if dialect != NATIVE else None,
            "source": '{"file": "file_1"}' if dialect == OPENAI else None,
        }
        query = "UPDATE jobs SET asked = :asked, source = :source WHERE id = :id"
        execute(self.people.database, query, values)
        return id


def _paths(routes: Iterable[BaseRoute]) -> Iterator[str]:
    """All GET routes."""
    for route in routes:
        if isinstance(route, APIRoute):
            if "GET" in (route.methods or ()):
                yield f"GET {route.path}"
        elif hasattr(route, "original_router"):
            yield from _paths(route.original_router.routes)


@pytest.fixture
def payloads(people: People) -> Payloads:
    return Payloads(people)


def test_every_route_that_shows_payloads_to_an_operator_records_it(payloads: Payloads) -> None:
    found = payloads.shown("operator", payloads.routes)
    assert found.keys() == SHOWING
    for route, entries in found.items():
        [(tenant, actor, target, detail)] = entries
        assert actor == payloads.people.ids["operator"]
        about = {"seq": 1} if "{seq}" in route else {}
        assert orjson.loads(detail) == {"route": route, **about}
        of_one = route != "GET /jobs"
        assert (tenant, target in payloads.jobs) == ("acme" if of_one else "*", of_one)


@pytest.mark.parametrize("who", ["acme", "chief"])
def test_reads_of_ones_own_are_not_recorded(payloads: Payloads, who: str) -> None:
    """Whatever one's role."""
    file = "GET /v1/files/{file_id}/content"
    routes = SHOWING - {"GET /jobs"} | {file}
    assert payloads.shown(who, routes).keys() == routes
    payloads.get(who, "/jobs?tenant=acme")
    assert payloads.entries() == []
    assert payloads.shown("operator", [file]) == {}


def test_what_is_refused_or_not_there_is_not_recorded(payloads: Payloads) -> None:
    assert payloads.shown("mallory") == {}
    job = payloads.job
    for path in (f"/jobs/{job}/items/9", f"/v1/batches/{job}", f"/v1/files/{payloads.file}"):
        assert payloads.get("operator", path).status_code == 404, path
    execute(payloads.people.database, "UPDATE jobs SET results_pruned = true")
    assert payloads.get("operator", f"/jobs/{job}/results").status_code == 410
    assert payloads.entries() == []


def test_a_verb_is_one_entry(payloads: Payloads) -> None:
    for path in (f"/jobs/{payloads.job}/cancel", f"/v1/batches/{payloads.batch}/cancel"):
        assert payloads.people.send("operator", "POST", path).status_code == 200
    assert (payloads.entries(), len(payloads.entries("job.cancel"))) == ([], 2)


def test_a_list_of_one_tenants_jobs_names_it(payloads: Payloads) -> None:
    payloads.get("operator", "/jobs?tenant=acme")
    [(tenant, _, target, _)] = payloads.entries()
    assert (tenant, target) == ("acme", "jobs")


def test_nothing_is_sent_of_a_read_that_cannot_be_recorded(payloads: Payloads) -> None:
    execute(payloads.people.database, FILL_DISK)
    for route in SHOWING:
        found = payloads.get("operator", payloads.path(route))
        assert (found.status_code, MARK in found.text) == (500, False), route
    assert MARK in payloads.get("acme", f"/jobs/{payloads.job}").text


@pytest.fixture
def times(parts_of_streams: None, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds on the clock of the audit log."""
    now_s = [clock.monotonic()]
    monkeypatch.setattr(recording, "clock", SimpleNamespace(monotonic=lambda: now_s[0]))
    return now_s


def test_a_live_page_is_one_entry_a_minute(payloads: Payloads, times: list[float]) -> None:
    def entries(who: str, query: str = "", live: bool = False) -> int:
        """Looks at the page of a job; returns how many entries there are for whoever did."""
        headers = {"Accept": "text/event-stream"} if live else {}
        page = payloads.people.page(who, f"/jobs/{payloads.job}{query}", headers=headers)
        assert MARK in page
        return [actor for _, actor, *_ in payloads.entries()].count(payloads.people.ids[who])

    for who in ("operator", "admin"):
        assert (entries(who), entries(who, live=True)) == (1, 1)  # the visit
        times[0] += 61
        assert entries(who, live=True) == 2
        assert entries(who, "?outcome=failed", live=True) == 3  # without its page
        assert (entries(who), entries(who)) == (4, 5)  # a visit each


def test_a_live_page_without_entry_is_recorded_next(payloads: Payloads, times: list[float]) -> None:
    people, path = payloads.people, f"/jobs/{payloads.job}"
    execute(people.database, FILL_DISK)
    assert MARK not in people.get("operator", path).text
    execute(people.database, "ALTER TABLE audit_chain DROP CONSTRAINT full_disk")
    assert MARK in people.page("operator", path, headers={"Accept": "text/event-stream"})
    assert len(payloads.entries()) == 1
