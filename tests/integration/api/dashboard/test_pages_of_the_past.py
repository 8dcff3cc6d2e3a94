"""Charts of the past and the last lines of a worker's log: on pages and by HTTP, for operators."""

from datetime import timedelta
from typing import Any

import orjson
import pytest
import redis
from sqlalchemy import Engine

from jobs.telemetry.log_ring import log_key
from tests.integration.api.conftest import XSS, People
from tests.support.stores.transactions import execute

MODEL, EMPTY = "/models/echo@1", "No figures yet"
FIGURES = {"calls_s": 4.5, "waiting": 12, "p50_s": 0.02, "p95_s": 0.08, "busy": 0.5}


def write(database: Engine, subject: str) -> None:
    """Writes figures of ten minutes, three hours ago."""
    execute(
        database,
        f"INSERT INTO figures (subject, step, at, {', '.join(FIGURES)}) SELECT :subject, 600, "
        f"date_bin('10 min', now() - :ago, 'epoch'), {', '.join(map(str, FIGURES.values()))}",
        {"subject": subject, "ago": timedelta(hours=3)},
    )


def test_pages_draw_figures_of_their_subject(people: People, worker: int) -> None:
    pages = {
        "everything": "",
        "model:echo@1": MODEL,
        f"worker:{worker}": f"/workers/{worker}",
        "pool:default": "/pools/default",
    }
    for path in pages.values():
        assert EMPTY in people.page("operator", path), path
    for subject, path in pages.items():
        write(people.database, subject)
        page = people.page("operator", f"{path}?range=7d")  # 24h is kept for a moment
        assert "Throughput over the last 7 days, per second: calls now 4.5" in page, path
        assert "The same as a table" in page


def test_a_tenant_sees_no_figures_of_a_model(people: People) -> None:
    write(people.database, "model:echo@1")
    page = people.page("acme", MODEL)
    assert "Throughput" not in page
    assert EMPTY not in page


def test_a_range_is_one_of_a_few(people: People) -> None:
    assert people.get("operator", f"{MODEL}?range=2y").status_code == 422
    assert XSS not in people.get("operator", f"{MODEL}?range={XSS}").text


def test_figures_are_told_by_http(people: People) -> None:
    write(people.database, "model:echo@1")
    found = people.ask("operator", "/history", about="model:echo@1", range="24h").json()
    assert (found["about"], found["range"], found["step_s"]) == ("model:echo@1", "24h", 600)
    [point] = found["data"]
    assert point | FIGURES == point
    assert point["tokens_s"] is None
    assert people.ask("operator", "/history", about="worker:99").json()["data"] == []
    assert people.ask("acme", "/history").status_code == 403
    for about in ("", "model:", "minilm@1", "model:a\x00", "x" * 301):
        assert people.ask("operator", "/history", about=about).status_code == 422, about


def log(client: "redis.Redis", worker: int, level: str, message: str, **more: str) -> None:
    line = {"timestamp": "2026-05-01T12:00:00.000Z", "level": level, "logger": "a.b"}
    line |= {"message": message, **more}
    client.xadd(log_key(worker), {"line": orjson.dumps(line)})


def test_a_log_shows_lines_newest_first_and_takes_none_for_markup(
    people: People, redis_client: "redis.Redis", worker: int
) -> None:
    path = f"/workers/{worker}/logs"
    assert "Nothing is kept" in people.page("operator", path)
    log(redis_client, worker, "info", "it began", job_id="job_7")
    log(redis_client, worker, "error", XSS, exception=f"Traceback {XSS}")
    page = people.page("operator", path)
    assert XSS not in page
    assert page.index("Traceback") < page.index("it began")
    assert "job_id job_7" in page
    filtered = people.page("operator", f"{path}?level=warning&text=TRACE")
    assert "it began" not in filtered
    assert "Traceback" in filtered
    assert "No line matches" in people.page("operator", f"{path}?text=absent")
    assert path in people.page("operator", f"/workers/{worker}")


def test_a_log_is_for_operators(people: People, worker: int) -> None:
    for who, number, status in (("acme", worker, 403), ("operator", 999, 404)):
        assert people.get(who, f"/workers/{number}/logs").status_code == status
        assert people.ask(who, f"/workers/{number}/logs").status_code == status


def test_lines_of_a_log_follow_by_http(
    people: People, redis_client: "redis.Redis", worker: int
) -> None:
    def ask(**query: Any) -> tuple[list[str], Any]:
        page = people.ask("operator", f"/workers/{worker}/logs", **query).json()
        return [line["message"] for line in page["data"]], page["next"]

    for n in range(5):
        log(redis_client, worker, "warning" if n % 2 else "info", f"line {n}")
    messages, after = ask(limit=2)
    assert messages == ["line 3", "line 4"]
    assert ask(level="warning")[0] == ["line 1", "line 3"]
    assert ask(after=after) == ([], after)
    log(redis_client, worker, "info", "line 5")
    assert ask(after=after)[0] == ["line 5"]


@pytest.mark.parametrize("query", [{"level": "loud"}, {"limit": 0}, {"after": "x"}])
def test_an_unknown_query_is_refused(people: People, worker: int, query: dict[str, Any]) -> None:
    assert people.ask("operator", f"/workers/{worker}/logs", **query).status_code == 422
