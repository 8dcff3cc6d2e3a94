"""Where models stand in workers, and who loads what is asked for."""

import pytest
from sqlalchemy import Engine, text

from jobs.store.queue import workers
from jobs.store.queue.workers import ModelRow, ModelState

SILENT_S = 12.0


@pytest.fixture
def two(database: Engine) -> tuple[int, int]:
    """Two workers that know x@1 and haven't loaded it."""
    with database.begin() as tx:
        one, other = (workers.register(tx, "w", "default", "cpu", ["x@1"]) for _ in range(2))
    for incarnation in (one, other):
        tell(database, incarnation, "absent")
        beat(database, incarnation, "ready")
    return one, other


def tell(database: Engine, incarnation: int, state: ModelState, **values: object) -> None:
    row = {"memory_mb": 0.0, "load_ms": 0.0, "error": ""} | values
    with database.begin() as tx:
        workers.report_models(tx, incarnation, [ModelRow("x@1", state, **row)])  # type: ignore[arg-type]


def beat(database: Engine, incarnation: int, state: str) -> None:
    with database.begin() as tx:
        workers.heartbeat(tx, incarnation, state)


def claims(database: Engine, incarnation: int) -> bool:
    with database.begin() as tx:
        return workers.claim_load(tx, incarnation, "x@1", SILENT_S)


def test_who_claims_a_load_keeps_the_others_from_it(database: Engine, two: tuple[int, int]) -> None:
    one, other = two
    assert claims(database, one)
    assert not claims(database, other)


@pytest.mark.parametrize("state", ["loading", "warming", "ready"])
def test_nobody_loads_what_another_has_or_is_about_to(
    database: Engine, two: tuple[int, int], state: ModelState
) -> None:
    one, other = two
    tell(database, one, state)
    assert not claims(database, other)


@pytest.mark.parametrize("state", ["absent", "draining", "failed"])
def test_another_one_loads_what_left_or_failed_here(
    database: Engine, two: tuple[int, int], state: ModelState
) -> None:
    one, other = two
    tell(database, one, state)
    assert claims(database, other)


@pytest.mark.parametrize("end", ["stopped", "draining", "lost", "silent"])
def test_what_a_worker_had_that_leaves_or_is_gone_is_loaded_by_another(
    database: Engine, two: tuple[int, int], end: str
) -> None:
    one, other = two
    tell(database, one, "ready")
    if end == "silent":
        with database.begin() as tx:
            tx.execute(
                text("UPDATE workers SET heartbeat_at = now() - interval '1 h' "
                     "WHERE incarnation = :one"), {"one": one},
            )  # fmt: skip
    else:
        beat(database, one, end)
    assert claims(database, other)


def test_models_stand_as_their_workers_say(database: Engine, two: tuple[int, int]) -> None:
    one, other = two
    tell(database, one, "ready", load_ms=70.0)
    tell(database, other, "failed", error="no such file")
    with database.connect() as tx:
        found = workers.model_statuses(tx, SILENT_S)
        assert workers.ready_counts(tx, SILENT_S) == {"x@1": 1}
    assert found["x@1"] == workers.ModelStatus({"ready": 1, "failed": 1}, 70.0, "no such file")


def test_what_is_ready_in_a_worker_that_leaves_is_draining(
    database: Engine, two: tuple[int, int]
) -> None:
    one, _ = two
    tell(database, one, "ready")
    beat(database, one, "draining")
    with database.connect() as tx:
        assert workers.model_statuses(tx, SILENT_S)["x@1"].states == {"draining": 1, "absent": 1}
        assert workers.ready_counts(tx, SILENT_S) == {}


def test_a_model_that_is_told_of_no_more_is_forgotten(
    database: Engine, two: tuple[int, int]
) -> None:
    for incarnation in two:
        with database.begin() as tx:
            workers.report_models(tx, incarnation, [])
    with database.connect() as tx:
        assert workers.model_statuses(tx, SILENT_S) == {}
