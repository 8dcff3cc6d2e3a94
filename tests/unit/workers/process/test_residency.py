"""Models in a worker's memory and adapters with artifacts, on a clock of the test's own; canaries
that were rolled back."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from jobs.models.adapters import Adapter
from jobs.models.model import AdaptedModel, Degrade, Model
from jobs.models.registered import Registered
from jobs.models.registry import Registry
from jobs.models.routing.route import Route, Share
from jobs.models.routing.table import RoutingTable
from tests.support.cases import each
from workers.process.artifacts.adapters import StagedAdapters
from workers.process.residency import REMOVED_STAYS_S, Residency, Resident, RolledBack


def model(name: str, memory_mb: int = 400, version: str = "1") -> Model:
    return Model(name, version, "echo", memory_mb=memory_mb)


class Table(Residency):
    """A residency with shortcuts through several states."""

    def of(self, name: str) -> Resident:
        return next(r for r in self if r.model.name == name)

    def names(self, *states: str) -> str:
        return "".join(r.model.name for r in self if r.state in states)

    def unload(self, name: str) -> None:
        self.of(name).change_state("draining")
        self.mark_unloaded(self.of(name))

    def load_all(self, now_s: float) -> None:
        self.reserve(now_s)
        while resident := self.next_load():
            assert self.measure(resident, resident.memory_mb)
            resident.change_state("warming")
            self.mark_ready(now_s, resident)

    def bring(self, now_s: float, *wanted: str) -> tuple[str, str]:
        """(who comes, who leaves); nobody does."""
        for resident, leaving in self.requested_loads(now_s, {f"{name}@1" for name in wanted}):
            return resident.model.name, "".join(other.model.name for other in leaving)
        return "", ""


def declared(*models: Model, **options: Any) -> Table:
    made = Table(**options)
    made.declare(0.0, models)
    return made


def table(*models: Model, budget_mb: float = 1000, min_stay_s: float = 30) -> Table:
    """All that fit are loaded, at 0."""
    made = declared(*models, budget_mb=budget_mb, min_stay_s=min_stay_s)
    made.load_all(0.0)
    return made


def test_with_a_budget_those_that_fit_are_loaded_and_without_one_all_as_declared() -> None:
    made = declared(model("a"), model("b", 10**6))
    made.reserve(0.0)
    assert made.names("loading") == "ab"
    assert made.next_load() is made.of("a")
    made = table(model("a"), model("b", 700), model("c", 600), model("d", 0))
    assert (made.names("ready"), made.names("absent")) == ("acd", "b")


def test_what_is_kept_warm_is_unloaded_after_idle_ones_and_before_those_in_use() -> None:
    made = table(*map(model, "abc"), budget_mb=800)
    made.of("a").used_s, made.of("b").used_s = 10.0, 20.0
    made.kept_warm = {"a@1"}
    assert made.bring(100.0, "c") == ("c", "b")
    made.of("b").used_s = 90.0
    assert made.bring(100.0, "c") == ("c", "a")
    made.of("a").used_s, made.of("b").used_s = 20.0, 10.0
    made.of("b").busy = True
    assert made.bring(400.0, "c") == ("c", "a")


def test_for_one_that_another_worker_has_nothing_that_is_in_use_leaves() -> None:
    made = table(*map(model, "abc"), budget_mb=800)
    made.of("a").used_s, made.of("b").used_s = 10.0, 90.0

    def leaves(now_s: float, name: str) -> list[str]:
        loads = made.requested_loads(now_s, {f"{name}@1"}, {"c@1", "d@1"})
        return [other.model.name for _, leaving in loads for other in leaving]

    assert leaves(100.0, "c") == ["a"]
    made.of("a").used_s = 80.0
    assert leaves(100.0, "c") == []
    assert leaves(120.0, "c") == ["a"]
    made.of("a").busy = made.of("b").busy = True
    assert leaves(10_000.0, "c") == []


def test_one_that_is_larger_than_the_budget_fails_for_good() -> None:
    made = table(model("a", 1001))
    assert made.of("a").state == "failed"
    assert made.bring(10**9, "a") == ("", "")
    made = declared(model("a", 0), budget_mb=1000)
    made.reserve(0.0)
    assert not made.measure(made.of("a"), 1500)
    assert (made.of("a").state, made.of("a").retry_s) == ("failed", inf)


def test_the_least_recently_used_leaves_for_one_that_is_wanted_and_as_many_as_it_takes() -> None:
    made = table(*(model(name, 300) for name in "abcd"))
    made.of("a").used_s = made.of("c").used_s = 20.0
    made.of("b").used_s = 10.0
    assert made.bring(30.0) == ("", "")
    assert made.bring(30.0, "d") == ("d", "b")
    made = table(model("a", 300), model("z", 0), model("b", 300), model("c", 300), model("d", 600))
    assert made.bring(30.0, "d") == ("d", "ab")


def test_nobody_leaves_before_its_minimum_stay_or_with_work_in_hand_before_a_long_one() -> None:
    made = table(*map(model, "abc"))
    assert made.bring(29.9, "c") == ("", "")
    assert made.bring(30.0, "c") == ("c", "a")
    made.of("a").busy = True
    made.of("b").used_s = 25.0
    assert made.bring(30.0, "c") == ("c", "b")
    made.of("b").busy = True
    assert made.bring(299.0, "c") == ("", "")
    assert made.bring(300.0, "c") == ("c", "a")


def test_the_room_of_one_that_drained_is_used_until_it_is_wanted_again() -> None:
    made = table(*map(model, "abc"))
    made.of("c").change_state("loading")
    made.of("a").change_state("draining")
    assert made.next_load() is None
    made.mark_unloaded(made.of("a"))
    assert made.next_load() is made.of("c")
    made.reserve(100.0)  # the room is promised
    assert made.names("loading") == "c"
    made = table(model("a"), model("b"))
    made.unload("a")
    made.load_all(100.0)
    assert made.names("ready") == "b"
    assert made.bring(100.0, "a") == ("a", "")


def test_one_that_says_how_large_it_is_only_when_loaded_leaves_where_it_does_not_fit() -> None:
    made = table(model("a", 700), model("b", 0))
    made.declare(0.0, [model("a", 700), model("c", 0)])
    made.reserve(0.0)
    assert not made.measure(made.of("c"), 400)
    assert made.of("c").state == "absent"
    made.reserve(0.0)
    assert made.names("loading") == ""
    assert made.bring(30.0, "c") == ("c", "a")


def test_a_load_that_fails_is_tried_again_later_and_later() -> None:
    made = declared(model("a"))
    for now_s, retry_s in ((0.0, 1.0), (1.0, 3.0), (3.0, 7.0), (100.0, 108.0)):
        made.reserve(now_s)
        made.mark_failed(now_s, made.of("a"), "no such file")
        assert (made.of("a").retry_s, made.of("a").error) == (retry_s, "no such file")
        made.reserve(retry_s - 0.1)
        assert made.of("a").state == "failed"
    made.load_all(108.0)
    assert (made.of("a").failures, made.of("a").error) == (0, "")


def test_a_version_that_is_removed_stays_for_a_while_or_for_work_that_is_left() -> None:
    made = table(model("x"), model("y"))
    made.declare(10.0, [model("y")])
    made.declare(11.0, [model("y")])
    assert made.removed(10.0 + REMOVED_STAYS_S - 0.1) == []
    assert made.removed(10.0 + REMOVED_STAYS_S) == [made.of("x")]
    assert made.of("x").state == "ready"
    made = table(model("x"))
    made.declare(10.0, [])
    made.declare(12.0, [model("x")])
    assert made.removed(100.0) == []
    made = table(model("a"), model("b"), model("x"))
    made.declare(0.0, [model("a")])
    made.unload("b")
    made.load_all(60.0)
    assert made.names("ready") == "a"
    assert made.bring(60.0, "x") == ("x", "")


def test_an_entry_that_came_back_as_another_waits_until_the_first_has_left() -> None:
    made = table(model("x", 100))
    made.declare(1.0, [model("x", 200)])
    assert made.removed(100.0) == [made.of("x")]
    made.unload("x")
    made.remove(made.of("x"))
    made.declare(2.0, [model("x", 200)])
    made.load_all(2.0)
    assert (made.of("x").state, made.of("x").memory_mb) == ("ready", 200)


def test_a_model_whose_loads_ended_workers_is_loaded_last_or_left_out_until_it_changes() -> None:
    left_out = {"b@1": "it crashed 3 times"}
    made = declared(*map(model, "abc"), late={"a@1"}, left_out=left_out)
    made.reserve(0)
    assert made.next_load() is made.of("c")
    made.load_all(0)
    assert made.names("ready") == "ac"
    assert (made.of("b").state, made.of("b").error) == ("failed", "it crashed 3 times")
    assert list(made.requested_loads(1e9, {"b@1"})) == []
    made = declared(model("a"), left_out={"a@1": "it crashed 3 times"})
    made.declare(1, [model("a", memory_mb=1)])
    [removed] = made.removed(1 + REMOVED_STAYS_S)
    made.remove(removed)
    made.declare(10, [model("a", memory_mb=1)])
    made.load_all(10)
    assert made.names("ready") == "a"


def test_a_model_on_demand_is_loaded_by_request_alone_and_again_after_it_was_unloaded() -> None:
    made = declared(replace(model("a"), on_demand=True), model("b"))
    made.load_all(0.0)
    assert (made.names("ready"), made.names("absent")) == ("b", "a")
    assert made.bring(0.0, "a") == ("a", "")
    made.of("a").change_state("loading")
    made.load_all(1.0)
    made.unload("a")
    made.reserve(2.0)
    assert made.names("absent") == "a"


def test_states_follow_each_other_and_an_artifact_is_verified_and_staged_before_it_is_loaded() -> (
    None
):
    made = declared(replace(model("a"), artifact=f"sha256:{'0' * 64}"), model("b"))
    made.reserve(0.0)
    first = made.of("a")
    assert (made.names("verifying"), made.names("loading")) == ("a", "b")
    assert made.next_load() is first
    assert not made.settled()
    with pytest.raises(AssertionError):
        first.change_state("loading")
    first.change_state("staging")
    made.mark_failed(1.0, first, "w.bin: broken")
    made.reserve(2.0)
    assert (made.names("verifying"), first.failures) == ("a", 1)
    resident = Resident(model("a"))
    with pytest.raises(AssertionError, match="a@1: absent to ready"):
        resident.change_state("ready")


STABLE, CANARY = Model("m", "1", "echo"), Model("m", "2", "echo", on_demand=True)
BACK = RoutingTable({("m", "stable"): "1"})


def unneeded(
    memory: RolledBack, now_s: float, table: Residency, routing: RoutingTable = BACK, id: str = "r"
) -> list[str]:
    models = [resident.model for resident in table]
    told = Registered(routing=routing, rolled_back=((id, "m@2"),))
    found = memory.unneeded(now_s, told, Registry(models, routing), table)
    return [resident.model.key for resident in found]


def test_a_canary_that_was_loaded_on_demand_is_unloaded_once_apis_know_of_the_rollback() -> None:
    memory, made = RolledBack(), declared(STABLE, CANARY)
    stable, canary = made
    for resident in (stable, canary):
        load(made, resident)
    assert unneeded(memory, 10.0, made) == []
    assert unneeded(memory, 10.0 + REMOVED_STAYS_S, made) == ["m@2"]
    assert unneeded(memory, 11.0 + REMOVED_STAYS_S, made) == ["m@2"], "until it is"
    canary.change_state("draining")
    assert unneeded(memory, 12.0 + REMOVED_STAYS_S, made) == []
    made.mark_unloaded(canary)
    load(made, canary)  # a call named it
    assert unneeded(memory, 99.0, made) == [], "a rollback unloads it once"
    assert unneeded(memory, 99.0, made, id="next") == []
    assert unneeded(memory, 99.0 + REMOVED_STAYS_S, made, id="next") == ["m@2"]


def load(made: Residency, resident: Resident) -> None:
    resident.change_state("loading")
    resident.change_state("warming")
    made.mark_ready(0.0, resident)


def test_a_rolled_back_canary_that_stays_loaded_or_is_named_stays() -> None:
    shadows = Route("m", [Share("1", 100)], shadow=Share("2", 1))
    named = RoutingTable({("m", "stable"): "1", ("m", "next"): "2"})
    falls_back = replace(STABLE, degrade=Degrade(fallback="m@2"))
    for (routing, *models), case in each(
        [
            (BACK, STABLE, replace(CANARY, on_demand=False)),
            (BACK, falls_back, CANARY),
            (named, STABLE, CANARY),
            (RoutingTable(routes={("m", "*"): shadows}), STABLE, CANARY),
        ]
    ):
        with case:
            memory, made = RolledBack(), declared(*models)
            for resident in made:
                load(made, resident)
            assert unneeded(memory, 0.0, made, routing) == []
            assert unneeded(memory, 99.0, made, routing) == []


def test_a_rolled_back_canary_that_is_being_loaded_is_waited_for() -> None:
    memory, made = RolledBack(), declared(CANARY)
    [canary] = made
    canary.change_state("loading")
    assert unneeded(memory, 0.0, made) == []
    canary.change_state("warming")
    assert unneeded(memory, 50.0, made) == []
    made.mark_ready(51.0, canary)
    assert unneeded(memory, 51.0, made) == ["m@2"]


ADAPTER = Adapter("legal", artifact=f"sha256:{'a' * 64}")
ADAPTED = AdaptedModel.create(Model("m", "1", "encoder", adapters=(ADAPTER,)), ADAPTER)


class Stages:
    """Refuses an adapter so often, then has its files."""

    def __init__(self, refusals: int) -> None:
        self.refusals, self.asked = refusals, 0

    def stage_adapter(self, model: AdaptedModel, stopped: object) -> Adapter:
        self.asked += 1
        if self.asked <= self.refusals:
            return model.adapter.refused("no signature", transient=False)
        return Adapter("legal", "/x", "0" * 64, artifact=ADAPTER.artifact)


def test_one_that_is_refused_is_shown_and_tried_again_with_backoff(now: list[float]) -> None:
    stages = Stages(refusals=2)
    adapters = StagedAdapters(stages, lambda: False)  # type: ignore[arg-type]
    for now[0], asked in ((0.0, 1), (0.9, 1), (1.0, 2), (2.9, 2)):
        assert not adapters.stage([ADAPTED])["legal"].path
        assert stages.asked == asked
        assert [(row.model, row.state, row.error) for row in adapters.rows()] == [
            ("m:legal@1", "failed", "no signature")
        ]
    now[0] = 3.0
    for _ in range(2):
        assert adapters.stage([ADAPTED])["legal"].path == "/x"
    assert (adapters.rows(), stages.asked) == ([], 3)
    adapters.forget("m@1")
    adapters.stage([ADAPTED])
    assert stages.asked == 4


def test_adapters_whose_files_lie_elsewhere_are_left_alone() -> None:
    adapter = Adapter("legal", "/x", "0" * 64)
    model = AdaptedModel.create(Model("m", "1", "encoder"), adapter)
    assert StagedAdapters(None, lambda: False).stage([model]) == {}  # type: ignore[arg-type]
