"""Jobs that aren't to be interrupted: left by spot workers to others, as long as there are any."""

from collections.abc import Sequence

import pytest
from sqlalchemy import Engine

from jobs.models.model import Limits, Model
from jobs.models.registry import Registry
from jobs.store.queue import claim as claims
from jobs.store.queue import workers
from jobs.store.queue.claim import Lease
from jobs.store.queue.workers import ModelRow
from jobs.usecases.submit import Order, submit
from tests.support.stores.transactions import transact

ECHO = Model("echo", "1", "echo", limits=Limits(slice_items=10))
OTHER = Model("other", "1", "echo", limits=Limits(slice_items=10))
MODELS = Registry([ECHO, OTHER])
SILENT_S = 60.0


def post(database: Engine, job_class: str, model: str = "echo", items: int = 30) -> None:
    submit(database, MODELS, "t", Order(model, job_class=job_class), array=["x"] * items)  # type: ignore[arg-type]


def claim(database: Engine, stays: Sequence[str], room: int = 1000) -> list[Lease]:
    return transact(database, claims.claim, 1, {ECHO: room, OTHER: room}, 60, stays=stays)


def classes(leases: Sequence[Lease]) -> set[str]:
    return {lease.job_class for lease in leases}


def test_jobs_of_other_classes_are_claimed_past_those_that_stay(database: Engine) -> None:
    post(database, "interactive")
    post(database, "standard")
    post(database, "bulk")
    found = claim(database, ["echo@1"])
    assert (classes(found), len(found)) == ({"standard", "bulk"}, 6)
    assert claim(database, ["echo@1"]) == []
    assert classes(claim(database, [])) == {"interactive"}


def test_models_that_nobody_else_is_ready_for_leave_nothing(database: Engine) -> None:
    post(database, "interactive", "other")
    assert classes(claim(database, ["echo@1"])) == {"interactive"}


def test_more_that_stay_than_a_claim_looks_at_hide_nothing(database: Engine) -> None:
    post(database, "interactive", items=300)
    post(database, "bulk", items=10)
    assert [lease.job_class for lease in claim(database, ["echo@1"], room=10)] == ["bulk"]


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
