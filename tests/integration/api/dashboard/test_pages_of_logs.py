"""The last lines of a worker's log: on a page and by HTTP, for operators."""

from typing import Any

import orjson
import pytest
import redis
from sqlalchemy import Engine

from jobs.store.queue import workers
from jobs.telemetry.log_ring import log_key
from tests.integration.api.dashboard.conftest import XSS, People
from tests.support.stores.transactions import transact


@pytest.fixture
def worker(database: Engine) -> int:
    return transact(database, workers.register, "w", "default", "cpu", ["echo@1"])


def write(client: "redis.Redis", worker: int, level: str, message: str, **more: str) -> None:
    line = {"timestamp": "2026-05-01T12:00:00.000Z", "level": level, "logger": "a.b",
            "message": message, **more}  # fmt: skip
    client.xadd(log_key(worker), {"line": orjson.dumps(line)})


def ask(people: People, who: str, worker: int, **query: Any) -> Any:
    headers = {"Authorization": f"Bearer {people.keys[who]}"}
    return people.client.get(f"/workers/{worker}/logs", params=query, headers=headers)


def messages(found: Any) -> list[str]:
    return [line["message"] for line in found.json()["data"]]


def test_the_page_shows_lines_newest_first_and_takes_none_for_markup(
    people: People, redis_client: "redis.Redis", worker: int
) -> None:
    path = f"/workers/{worker}/logs"
    assert "Nothing is kept" in people.get("operator", path).text
    write(redis_client, worker, "info", "it began", job_id="job_7")
    write(redis_client, worker, "error", XSS, exception=f"Traceback {XSS}")
    page = people.get("operator", path).text
    assert XSS not in page
    assert page.index("Traceback") < page.index("it began")
    assert "job_id job_7" in page
    filtered = people.get("operator", f"{path}?level=warning&text=TRACE").text
    assert "it began" not in filtered
    assert "Traceback" in filtered
    assert "No line matches" in people.get("operator", f"{path}?text=absent").text
    assert path in people.get("operator", f"/workers/{worker}").text


def test_it_is_for_operators(people: People, worker: int) -> None:
    assert people.get("acme", f"/workers/{worker}/logs").status_code == 403
    assert ask(people, "acme", worker).status_code == 403
    assert people.get("operator", "/workers/999/logs").status_code == 404
    assert ask(people, "operator", 999).status_code == 404


def test_lines_follow_by_http(people: People, redis_client: "redis.Redis", worker: int) -> None:
    for n in range(5):
        write(redis_client, worker, "warning" if n % 2 else "info", f"line {n}")
    found = ask(people, "operator", worker, limit=2)
    assert messages(found) == ["line 3", "line 4"]
    assert messages(ask(people, "operator", worker, level="warning")) == ["line 1", "line 3"]
    after = found.json()["next"]
    again = ask(people, "operator", worker, after=after)
    assert (messages(again), again.json()["next"]) == ([], after)
    write(redis_client, worker, "info", "line 5")
    assert messages(ask(people, "operator", worker, after=after)) == ["line 5"]


@pytest.mark.parametrize("query", [{"level": "loud"}, {"limit": 0}, {"after": "x"}])
def test_an_unknown_query_is_refused(people: People, worker: int, query: dict[str, Any]) -> None:
    assert ask(people, "operator", worker, **query).status_code == 422
