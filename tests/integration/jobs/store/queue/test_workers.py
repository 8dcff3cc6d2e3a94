"""Where models stand in workers, and who loads what is asked for."""

import pytest
from sqlalchemy import Engine

from jobs.store.monitoring import diagnostics, gauges
from jobs.store.monitoring import workers as fleet
from jobs.store.queue import workers
from jobs.store.queue.workers import ModelRow, ModelState
from tests.support.stores.store import post
from tests.support.stores.transactions import execute, transact

SILENT_S = 600.0


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
    transact(database, workers.report_models, incarnation, [ModelRow("x@1", state, **row)])


def beat(database: Engine, incarnation: int, state: str) -> None:
    transact(database, workers.heartbeat, incarnation, state)


def claims(database: Engine, incarnation: int, most: int = 1) -> bool:
    return transact(database, workers.claim_load, incarnation, "x@1", SILENT_S, most=most)


def test_who_claims_a_load_keeps_the_others_from_it(database: Engine, two: tuple[int, int]) -> None:
    one, other = two
    assert claims(database, one)
    assert not claims(database, other)


@pytest.mark.parametrize("state", ["loading", "warming", "ready", "absent", "draining", "failed"])
def test_another_one_loads_what_is_not_here_nor_about_to_be(
    database: Engine, two: tuple[int, int], state: ModelState
) -> None:
    one, other = two
    tell(database, one, state)
    assert claims(database, other) == (state in ("absent", "draining", "failed"))


def test_as_many_load_a_model_as_may_have_it(database: Engine, two: tuple[int, int]) -> None:
    one, other = two
    tell(database, one, "ready")
    assert claims(database, other, most=2)
    third = transact(database, workers.register, "w", "default", "cpu", ["x@1"])
    tell(database, third, "absent")
    assert not claims(database, third, most=2)


@pytest.mark.parametrize("end", ["stopped", "draining", "lost", "silent"])
def test_what_a_worker_had_that_leaves_or_is_gone_is_loaded_by_another(
    database: Engine, two: tuple[int, int], end: str
) -> None:
    one, other = two
    tell(database, one, "ready")
    if end == "silent":
        execute(database, "UPDATE workers SET heartbeat_at = now() - interval '1 h' "
                     "WHERE incarnation = :one", {"one": one})  # fmt: skip
    else:
        beat(database, one, end)
    assert claims(database, other)


def test_models_stand_as_their_workers_tell(database: Engine, two: tuple[int, int]) -> None:
    one, other = two
    tell(database, one, "ready", load_ms=70.0)
    tell(database, other, "failed", error="no such file")
    found = transact(database, workers.model_statuses, SILENT_S)["x@1"]
    assert found == workers.ModelStatus({"ready": 1, "failed": 1}, 70.0, "no such file")
    assert transact(database, workers.ready_counts, SILENT_S) == {"x@1": 1}
    tell(database, other, "absent")
    beat(database, one, "draining")
    found = transact(database, workers.model_statuses, SILENT_S)["x@1"]
    assert found.states == {"draining": 1, "absent": 1}
    assert transact(database, workers.ready_counts, SILENT_S) == {}
    for incarnation in two:
        transact(database, workers.report_models, incarnation, [])
    assert transact(database, workers.model_statuses, SILENT_S) == {}


def test_drained_workers_are_known_by_model(database: Engine, two: tuple[int, int]) -> None:
    one, _ = two
    tell(database, one, "ready")
    assert transact(database, workers.drained, SILENT_S) == {}
    transact(database, fleet.request_drain, one, drain=True)
    assert transact(database, workers.drained, SILENT_S) == {"x@1": (one,)}
    models = transact(database, diagnostics.observations, SILENT_S).models
    assert models["x@1"].drained == (one,)
    beat(database, one, "stopped")
    assert transact(database, workers.drained, SILENT_S) == {}


def state(database: Engine, incarnation: int) -> tuple[str, str | None]:
    row = transact(database, fleet.one, incarnation)
    assert row is not None
    return row.state, row.device_error


@pytest.fixture
def sick(database: Engine, two: tuple[int, int]) -> int:
    """One of the two, which is quarantined."""
    transact(database, workers.report_death, two[0], "sick", "CUDA error: unknown error")
    transact(database, workers.quarantine, two[0])
    return two[0]


def test_a_quarantined_worker_stays_so_till_resumed(database: Engine, sick: int) -> None:
    with database.begin() as tx:
        assert workers.is_quarantined(tx, sick)
        counts = {("default", "quarantined"): 1, ("default", "ready"): 1}
        assert gauges.workers(tx, SILENT_S) == counts
        [seen] = diagnostics.observations(tx, SILENT_S).sick
        assert (seen.incarnation, seen.quarantined) == (sick, True)
    assert state(database, sick) == ("quarantined", "CUDA error: unknown error")
    with database.begin() as tx:
        assert fleet.request_drain(tx, sick, drain=False)
        assert not workers.is_quarantined(tx, sick)
        assert not fleet.request_drain(tx, sick, drain=False)
    assert state(database, sick)[0] == "lost"


def test_a_quarantine_that_no_supervisor_keeps_is_not_counted(database: Engine, sick: int) -> None:
    execute(database, "UPDATE workers SET watched_at = now() - interval '1 h'")
    assert ("default", "quarantined") not in transact(database, gauges.workers, SILENT_S)
    assert transact(database, diagnostics.observations, SILENT_S).sick == ()


def test_jobs_succeeding_elsewhere_are_counted(database: Engine, two: tuple[int, int]) -> None:
    one, other = two
    made = [post(database, "x") for _ in range(3)]
    done = "UPDATE slices SET state = 'done', worker = :worker, n_succeeded = 1 WHERE job_id = :job"
    for job, worker in zip(made, (one, other, other), strict=True):
        execute(database, done, {"worker": worker, "job": job})
    assert transact(database, workers.count_succeeding_elsewhere, one, made) == 2
    assert transact(database, workers.count_succeeding_elsewhere, one, made[:1]) == 0


@pytest.mark.parametrize(
    ("state", "notice_s", "model_state", "counts"),
    [
        ("ready", 0.0, "ready", True),
        ("ready", 120.0, "ready", False),
        ("draining", 0.0, "ready", False),
        ("stopped", 0.0, "ready", False),
        ("ready", 0.0, "loading", False),
    ],
)
def test_others_are_ready_workers_that_are_not_spot(
    database: Engine, state: str, notice_s: float, model_state: str, counts: bool
) -> None:
    with database.begin() as tx:
        one = workers.register(tx, "w", "default", "cpu", ["echo@1"], notice_s)
        workers.report_models(tx, one, [ModelRow("echo@1", model_state, 0.0, 0.0, "")])  # type: ignore[arg-type]
        workers.heartbeat(tx, one, state)
        found = workers.ready_on_demand(tx, SILENT_S, ["echo@1", "other@1"])
    assert found == ({"echo@1"} if counts else set())
