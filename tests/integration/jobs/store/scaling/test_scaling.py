"""What pools are scaled by: time that is left for jobs, and reclaims of spot workers."""

import pytest
from sqlalchemy import Engine, text

from jobs.models.builtin_models import SAMPLES
from jobs.store.queue import workers
from jobs.store.scaling import policies, promises, reclaims
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


@pytest.fixture
def spot(database: Engine) -> int:
    return registered(database, 120.0)


def registered(database: Engine, notice_s: float) -> int:
    with database.begin() as tx:
        id = workers.register(tx, "w", "gpu", "cpu", ["echo@1"], notice_s)
        workers.heartbeat(tx, id, "ready")
    return id


def events(database: Engine) -> list[tuple[str, str, str]]:
    return [(one.act, one.actor, one.reason) for one in transact(database, policies.events, "gpu")]


def fall_silent(database: Engine) -> int:
    with database.begin() as tx:
        tx.execute(text("UPDATE workers SET heartbeat_at = now() - interval '1 min'"))
        return reclaims.lose_silent(tx, 30.0)


def test_a_reclaim_is_one_event_with_its_notice(database: Engine, spot: int) -> None:
    for by in ("aws", "sigterm"):
        transact(database, reclaims.record, spot, by, 117.4)
    words = f"the machine of worker {spot} goes in 117 s, by aws"
    assert events(database) == [("reclaimed", f"worker {spot}", words)]
    assert transact(database, reclaims.recent) == {("gpu", "aws"): 1}
    assert fall_silent(database) == 1
    assert len(events(database)) == 1  # there was a notice


def test_a_silent_spot_worker_was_reclaimed_without_notice(database: Engine, spot: int) -> None:
    other = registered(database, 0.0)
    assert fall_silent(database) == 2
    assert events(database) == [
        ("reclaimed", f"worker {spot}", f"worker {spot} fell silent, without notice")
    ]
    assert transact(database, reclaims.recent) == {("gpu", "silence"): 1}
    assert fall_silent(database) == 0
    assert other != spot


def test_reclaims_are_forgotten_after_an_hour(database: Engine, spot: int) -> None:
    with database.begin() as tx:
        reclaims.record(tx, spot, "file", 10.0)
        tx.execute(text("UPDATE workers SET heartbeat_at = now() - interval '61 min'"))
        assert reclaims.recent(tx) == {}


def test_events_of_a_pool_without_a_policy_are_deleted_in_time(database: Engine, spot: int) -> None:
    with database.begin() as tx:
        policies.add_event(tx, "gpu", "reclaimed", None, "long ago", "worker 1")
        tx.execute(text("UPDATE scale_events SET at = now() - interval '1 year'"))
        reclaims.record(tx, spot, "aws", 117.4)
    assert [actor for _, actor, _ in events(database)] == [f"worker {spot}"]
