"""Tracebacks of items: shown with the item, and to nobody who reads results by the thousand."""

import orjson
import pytest
from sqlalchemy import Engine, text

from tests.integration.api.conftest import XSS, Jobs, People

FRAMES = f'File "model.py", line 5, in predict\n    raise KeyError\nKeyError: {XSS}'
ERROR = {"code": "engine_error", "message": f',"traceback":"no" {XSS}', "attempts": [{"code": "x"}]}


def change(database: Engine, sql: str, **values: object) -> None:
    """Changes results, which are insert-only."""
    with database.begin() as tx:
        tx.execute(text("SET LOCAL session_replication_role = replica"))
        tx.execute(text(sql), values)


@pytest.fixture
def job_id(jobs: Jobs) -> str:
    """A job whose second and third item have the same traceback."""
    made = jobs.failed()
    fail = "UPDATE results SET outcome = 'failed', output = NULL, error = :error WHERE seq = :seq"
    for seq, more in enumerate(({"traceback": FRAMES}, {"traceback_of": 1}), 1):
        change(jobs.database, fail, seq=seq, error=orjson.dumps(ERROR | more).decode())
    return made


@pytest.mark.parametrize("seq", [1, 2])
def test_an_item_shows_its_traceback_first(people: People, job_id: str, seq: int) -> None:
    path = f"/jobs/{job_id}/items/{seq}"
    assert people.ask("reader", path).json()["error"] == ERROR | {"traceback": FRAMES}
    content = people.page("reader", path).split("<main")[1]
    assert content.index('id="error"') < content.index('id="input"')
    assert "File &#34;model.py&#34;, line 5, in predict" in content
    assert "<script>alert" not in content
    assert people.get("mallory", path).status_code == 404


@pytest.mark.parametrize("query", ["", "?outcome=failed&gaps=true"])
def test_lines_of_results_have_no_tracebacks(people: People, job_id: str, query: str) -> None:
    answer = people.ask("acme", f"/jobs/{job_id}/results{query}")
    lines = [orjson.loads(line) for line in answer.text.splitlines()]
    assert [line["error"] for line in lines if line["seq"]] == [ERROR, ERROR]


def test_an_item_whose_namesake_is_gone_has_no_traceback(people: People, job_id: str) -> None:
    change(people.database, "DELETE FROM results WHERE seq = 1")
    assert people.ask("acme", f"/jobs/{job_id}/items/2").json()["error"] == ERROR
