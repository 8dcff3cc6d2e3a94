"""Tracebacks of items: shown with the item, and to nobody who reads results by the thousand."""

import orjson
import pytest
from sqlalchemy import Engine, text

from tests.integration.api.dashboard.conftest import XSS, Jobs, People

FRAMES = f'File "model.py", line 5, in predict\n    raise KeyError\nKeyError: {XSS}'
ERROR = {"code": "engine_error", "message": f',"traceback":"no" {XSS}', "attempts": [{"code": "x"}]}


@pytest.fixture
def job_id(jobs: Jobs, database: Engine) -> str:
    """A job whose second and third item have the same traceback."""
    made = jobs.failed()
    errors = {1: ERROR | {"traceback": FRAMES}, 2: ERROR | {"traceback_of": 1}}
    with database.begin() as tx:
        tx.execute(text("SET LOCAL session_replication_role = replica"))  # they are insert-only
        for seq, error in errors.items():
            values = {"seq": seq, "error": orjson.dumps(error).decode()}
            tx.execute(
                text(
                    "UPDATE results SET outcome = 'failed', output = NULL, error = :error"
                    " WHERE seq = :seq"
                ),
                values,
            )
    return made


@pytest.mark.parametrize("seq", [1, 2])
def test_an_item_shows_its_traceback_first(people: People, job_id: str, seq: int) -> None:
    headers = {"Authorization": f"Bearer {people.keys['reader']}"}
    item = people.client.get(f"/jobs/{job_id}/items/{seq}", headers=headers).json()
    assert item["error"] == ERROR | {"traceback": FRAMES}
    page = people.get("reader", f"/jobs/{job_id}/items/{seq}").text
    content = page.split("<main")[1]
    assert content.index('id="error"') < content.index('id="input"')
    assert "File &#34;model.py&#34;, line 5, in predict" in content
    assert "<script>alert" not in content
    assert people.get("mallory", f"/jobs/{job_id}/items/{seq}").status_code == 404


@pytest.mark.parametrize("query", ["", "?outcome=failed&gaps=true"])
def test_lines_of_results_have_no_tracebacks(people: People, job_id: str, query: str) -> None:
    headers = {"Authorization": f"Bearer {people.keys['acme']}"}
    answer = people.client.get(f"/jobs/{job_id}/results{query}", headers=headers)
    lines = [orjson.loads(line) for line in answer.text.splitlines()]
    assert [line["error"] for line in lines if line["seq"]] == [ERROR, ERROR]


def test_an_item_whose_namesake_is_gone_has_no_traceback(
    people: People, jobs: Jobs, job_id: str, database: Engine
) -> None:
    with database.begin() as tx:
        tx.execute(text("SET LOCAL session_replication_role = replica"))
        tx.execute(text("DELETE FROM results WHERE seq = 1"))
    headers = {"Authorization": f"Bearer {people.keys['acme']}"}
    item = people.client.get(f"/jobs/{job_id}/items/2", headers=headers).json()
    assert item["error"] == ERROR
