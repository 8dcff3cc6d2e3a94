"""Time that is left for the jobs of a model, by their classes."""

import pytest
from sqlalchemy import Engine

from jobs.models.builtin_models import SAMPLES
from jobs.store.scaling import promises
from tests.support.stores.store import ECHO, claim, post, settle
from tests.support.stores.transactions import execute, transact

BATCH = SAMPLES.resolve("batchstring")


def left_s(database: Engine) -> dict[str, float]:
    return transact(database, promises.left_s, [ECHO, BATCH], 300.0)


def test_a_standard_job_has_minutes_bulk_an_hour_interactive_nothing(database: Engine) -> None:
    assert left_s(database) == {}
    post(database, "a", job_class="bulk")
    assert left_s(database) == {"echo@1": pytest.approx(3600, abs=60)}
    post(database, "b")
    assert left_s(database) == {"echo@1": pytest.approx(300, abs=60)}
    post(database, "c", job_class="interactive")
    assert left_s(database)["echo@1"] <= 0


def test_no_job_has_more_than_half_of_the_time_after_which_it_expires(database: Engine) -> None:
    post(database, "a", expires_in_s=100.0)
    assert left_s(database)["echo@1"] == pytest.approx(50, abs=30)


def test_time_passes_until_the_job_has_ended(database: Engine) -> None:
    post(database, "a", expires_in_s=None)
    execute(database, "UPDATE jobs SET created_at = created_at - interval '400 s'")
    assert left_s(database)["echo@1"] == pytest.approx(-100, abs=60)
    settle(database, claim(database))
    assert left_s(database) == {}
