"""Canaries that were rolled back, on a clock of the test's own."""

from dataclasses import replace

import pytest

from jobs.models.model import Degrade, Model
from jobs.models.registered import Registered
from jobs.models.registry import Registry
from jobs.models.routing.route import Route, Share
from jobs.models.routing.table import RoutingTable
from workers.process.residency import REMOVED_STAYS_S, Residency, RolledBack

STABLE = Model("m", "1", "echo")
CANARY = Model("m", "2", "echo", on_demand=True)
BACK = RoutingTable({("m", "stable"): "1"})


def worker(*models: Model) -> Residency:
    """A worker that has loaded all models, at 0."""
    table = Residency()
    table.declare(0.0, models)
    for resident in table:
        resident.change_state("loading")
        resident.change_state("warming")
        table.mark_ready(0.0, resident)
    return table


def unneeded(
    memory: RolledBack, now_s: float, table: Residency, routing: RoutingTable = BACK, id: str = "r"
) -> list[str]:
    models = [resident.model for resident in table]
    told = Registered(routing=routing, rolled_back=((id, "m@2"),))
    found = memory.unneeded(now_s, told, Registry(models, routing), table)
    return [resident.model.key for resident in found]


def test_a_canary_that_was_loaded_on_demand_is_unloaded_once_apis_know_of_the_rollback() -> None:
    memory, table = RolledBack(), worker(STABLE, CANARY)
    assert unneeded(memory, 10.0, table) == []
    assert unneeded(memory, 10.0 + REMOVED_STAYS_S, table) == ["m@2"]
    assert unneeded(memory, 11.0 + REMOVED_STAYS_S, table) == ["m@2"], "until it is"
    [_, canary] = table
    canary.change_state("draining")
    assert unneeded(memory, 12.0 + REMOVED_STAYS_S, table) == []
    table.mark_unloaded(canary)
    for state in ("loading", "warming", "ready"):  # a call named it
        canary.change_state(state)
    assert unneeded(memory, 99.0, table) == [], "a rollback unloads it once"
    assert unneeded(memory, 99.0, table, id="next") == []
    assert unneeded(memory, 99.0 + REMOVED_STAYS_S, table, id="next") == ["m@2"]


@pytest.mark.parametrize(
    ("routing", "stable", "canary"),
    [
        (BACK, STABLE, replace(CANARY, on_demand=False)),
        (BACK, replace(STABLE, degrade=Degrade(fallback="m@2")), CANARY),
        (RoutingTable({("m", "stable"): "1", ("m", "next"): "2"}), STABLE, CANARY),
        (
            RoutingTable(routes={("m", "*"): Route("m", [Share("1", 100)], shadow=Share("2", 1))}),
            STABLE,
            CANARY,
        ),
    ],
)
def test_what_stays_loaded_or_is_named_stays(
    routing: RoutingTable, stable: Model, canary: Model
) -> None:
    memory, table = RolledBack(), worker(stable, canary)
    assert unneeded(memory, 0.0, table, routing) == []
    assert unneeded(memory, 99.0, table, routing) == []


def test_one_that_is_being_loaded_is_waited_for() -> None:
    memory, table = RolledBack(), Residency()
    table.declare(0.0, [CANARY])
    [canary] = table
    canary.change_state("loading")
    assert unneeded(memory, 0.0, table) == []
    canary.change_state("warming")
    assert unneeded(memory, 50.0, table) == []
    table.mark_ready(51.0, canary)
    assert unneeded(memory, 51.0, table) == ["m@2"]
