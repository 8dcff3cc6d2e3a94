"""Charts of the past on pages, and the same figures by HTTP: for operators."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from jobs.store.queue import workers
from tests.integration.api.dashboard.conftest import XSS, People
from tests.support.stores.transactions import execute, transact

MODEL, EMPTY = "/models/echo@1", "No figures yet"
FIGURES = {"calls_s": 4.5, "waiting": 12, "p50_s": 0.02, "p95_s": 0.08, "busy": 0.5}


def write(database: Engine, subject: str, step: int = 600, hours_ago: float = 3) -> None:
    names = ", ".join(FIGURES)
    values = ", ".join(map(str, FIGURES.values()))
    execute(
        database,
        f"INSERT INTO figures (subject, step, at, {names}) SELECT :subject, :step, "
        f"date_bin('10 min', now() - :ago, 'epoch'), {values}",
        {"subject": subject, "step": step, "ago": timedelta(hours=hours_ago)},
    )


@pytest.fixture
def worker(database: Engine) -> int:
    return transact(database, workers.register, "w", "default", "cpu", ["echo@1"])


def test_pages_draw_figures_of_their_subject(people: People, database: Engine, worker: int) -> None:
    pages = {
        "everything": "",
        "model:echo@1": MODEL,
        f"worker:{worker}": f"/workers/{worker}",
        "pool:default": "/pools/default",
    }
    for path in pages.values():
        found = people.get("operator", path)
        assert (found.status_code, EMPTY in found.text) == (200, True), path
    for subject, path in pages.items():
        write(database, subject)
        page = people.get("operator", f"{path}?range=7d").text  # 24h is kept for a moment
        assert "Throughput over the last 7 days, per second: calls now 4.5" in page, path
        assert "The same as a table" in page


def test_a_tenant_sees_no_figures_of_a_model(people: People, database: Engine) -> None:
    write(database, "model:echo@1")
    page = people.get("acme", MODEL)
    assert page.status_code == 200
    assert "Throughput" not in page.text
    assert EMPTY not in page.text


def test_a_range_is_one_of_a_few(people: People) -> None:
    assert people.get("operator", f"{MODEL}?range=2y").status_code == 422
    assert XSS not in people.get("operator", f"{MODEL}?range={XSS}").text


def ask(people: People, who: str, **query: Any) -> Any:
    headers = {"Authorization": f"Bearer {people.keys[who]}"}
    return people.client.get("/history", params=query, headers=headers)


def test_figures_are_told_by_http(people: People, database: Engine) -> None:
    write(database, "model:echo@1")
    found = ask(people, "operator", about="model:echo@1", range="24h").json()
    assert (found["about"], found["range"], found["step_s"]) == ("model:echo@1", "24h", 600)
    [point] = found["data"]
    assert point | FIGURES == point
    assert point["tokens_s"] is None
    assert ask(people, "operator", about="worker:99").json()["data"] == []
    assert ask(people, "acme").status_code == 403


@pytest.mark.parametrize("about", ["", "model:", "minilm@1", "model:a\x00", "x" * 301])
def test_a_subject_has_a_kind(people: People, about: str) -> None:
    assert ask(people, "operator", about=about).status_code == 422
