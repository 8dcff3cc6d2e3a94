"""What a client sends, through COPY, and out of PostgreSQL again."""

import json
from typing import Any

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from jobs.models.builtin_models import SAMPLES
from jobs.usecases.submit import Order, submit
from tests.support.json_values import custom_ids, json_values

_ITEMS = text("SELECT custom_id, input FROM items WHERE job_id = :job ORDER BY seq")
_AWKWARD = ["\\", "\\N", "\\.", "\t\r\n", "\\t", "\x01\x7f\u2028", '"', "\U0001f600", "", None]


def stored(database: Engine, items: list[Any]) -> list[tuple[str | None, Any]]:
    job = submit(database, SAMPLES, "a\t\\b\n", Order("echo"), array=items).id
    with database.connect() as tx:
        return [(row[0], orjson.loads(row[1])) for row in tx.execute(_ITEMS, {"job": job})]


def test_awkward_texts_are_stored_as_they_are(database: Engine) -> None:
    assert stored(database, _AWKWARD) == [(None, value) for value in _AWKWARD]


@settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.tuples(custom_ids, json_values), min_size=1, unique_by=lambda pair: pair[0]))
def test_any_json_is_stored_as_it_is(database: Engine, sent: list[tuple[str, Any]]) -> None:
    found = stored(database, [{"custom_id": id, "input": value} for id, value in sent])
    assert json.dumps(found) == json.dumps(sent)
