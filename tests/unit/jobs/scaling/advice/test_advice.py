"""Offers of workers, those that leave items to cheaper ones, models that need another worker."""

from typing import Any

import pytest

from jobs.models.model import Limits, Model
from jobs.scaling.advice.cheapest import leaving
from jobs.scaling.advice.offers import Offer, offers
from jobs.scaling.advice.replicas import candidates, needs_another, replicas
from jobs.scaling.measure import ModelLoad, Queue
from jobs.telemetry.reports.reports import Report, ReportSet
from jobs.telemetry.reports.window import WindowDelta
from tests.support.cases import each

M = Model("m", "1", "echo", pool=("l4", "h100"), limits=Limits(max_batch=10))
OTHER = Model("o", "1", "echo", pool=("l4", "h100"), limits=Limits(max_batch=10))
ITEMS = {"m@1": 1000.0, "o@1": 500.0}


def worker(
    name: str, pool: str, price: float, full_ms: float, state: str = "ready", **models: Any
) -> Report:
    """One that takes so long for ten entries of each model, in two launches at a time."""
    its = {"state": "ready", "profile": {"0": times(full_ms)}, "slots": 2}
    known = {"m@1": its, "o@1": its} if not models else models["models"]
    details = {"pool": pool, "price": price, "state": state, "models": known}
    return Report(name, "worker", 0.0, WindowDelta(60, {}, {}), details)


def times(full_ms: float) -> dict[str, float]:
    return {"full_rows": 10, "full_ms": full_ms, "one_ms": 1.0}


def found(*reports: Report) -> dict[str, list[Offer]]:
    return offers([M, OTHER], ReportSet(reports), ITEMS, {"h100": 0.5, "l4": 0.99})


def test_an_offer_has_the_time_and_cost_of_an_item_and_of_all_that_waits() -> None:
    its = found(worker("1", "l4", 0.5, 400.0), worker("2", "h100", 4.0, 100.0))
    cheap, dear = its["m@1"]
    assert (cheap.worker, cheap.pool, cheap.item_s) == ("1", "l4", pytest.approx(0.02))
    assert (cheap.cost, dear.cost) == (pytest.approx(0.01), pytest.approx(0.02))
    assert dear.drain_s == pytest.approx(1500 * 0.005 / 0.5)  # calls use half of it
    assert cheap.drain_s == pytest.approx(1500 * 0.02 / 0.1)  # a tenth is free at least
    assert its.keys() == {"m@1", "o@1"}


def test_workers_of_one_price_and_those_that_take_no_work_offer_nothing() -> None:
    assert found(worker("1", "l4", 1.0, 400.0), worker("2", "h100", 1.0, 100.0)) == {}
    alone = worker("2", "h100", 4.0, 100.0, models={"m@1": {"state": "ready", "profile": {}}})
    assert found(worker("1", "l4", 1.0, 400.0), alone) == {}
    loading = {"state": "loading", "profile": {"0": times(9.0)}}
    reports = [
        worker("1", "l4", 0.5, 400.0),
        worker("2", "h100", 4.0, 100.0),
        worker("3", "l4", 0.5, 400.0, state="draining"),
        worker("4", "l4", 0.5, 400.0, models={"m@1": loading}),
    ]
    assert [offer.worker for offer in found(*reports)["m@1"]] == ["1", "2"]


CHEAP = Offer("cheap", "l4", 1.0, item_s=0.02, drain_s=100.0)
DEAR = Offer("dear", "h100", 6.0, item_s=0.01, drain_s=50.0)  # three times the cost of an item


def test_a_dear_worker_leaves_items_as_long_as_the_cheap_one_is_in_time() -> None:
    cases = [
        (None, (), True),  # no job: whatever comes is for the cheap one
        (145.0, (), True),  # 100 s are 69 % of it
        (140.0, (), False),
        (115.0, ("dear",), True),  # goes on with it until 90 %
        (110.0, ("dear",), False),
        (0.0, ("dear",), False),
        (-60.0, (), False),
    ]
    for (left_s, before, leaves), case in each(cases):
        with case:
            assert leaving([DEAR, CHEAP], left_s, before) == ({"dear"} if leaves else set())


def test_only_as_many_dear_workers_take_part_as_are_needed_by_the_costs_of_items() -> None:
    dear = [Offer(f"dear-{n}", "h100", 6.0, 0.01, 50.0) for n in range(4)]
    assert leaving([CHEAP, *dear], 100.0) == {"dear-1", "dear-2", "dear-3"}
    assert leaving([CHEAP, *dear], 30.0) == {"dear-2", "dear-3"}
    assert leaving(dear[1:], 100.0) == set()  # the cheap one is gone
    idle = [Offer(one.worker, one.pool, one.price, one.item_s, 0.0) for one in (CHEAP, DEAR)]
    assert leaving(idle, 5.0) == {"dear"}
    assert leaving(idle, -5.0) == set()
    assert leaving([], None) == set()
    quick = Offer("quick", "h100", 6.0, item_s=0.002, drain_s=10.0)
    assert leaving([CHEAP, quick], 300.0) == {"cheap"}
    other = Offer("other", "l40", 1.2, 0.02, 100.0)
    assert leaving([CHEAP, other], None) == set()


def load(**figures: Any) -> ModelLoad:
    quiet = {
        "key": "m@1", "answered": 100.0, "refused": 0.0, "judged": 100.0, "late": 0.0,
        "offered": 0.3, "items": 0.0, "backlog_s": 0.0, "queue": Queue(), "target_s": 0.1,
        "known": True,
    }  # fmt: skip
    return ModelLoad(**{**quiet, **figures})


def test_a_model_needs_another_worker_by_its_calls_or_items() -> None:
    cases = [
        ({}, False),
        ({"offered": 0.84}, False),
        ({"offered": 0.86}, True),
        ({"offered": 0.6, "refused": 2.0}, True),
        ({"offered": 0.6, "late": 6.0}, True),
        ({"offered": 0.6, "refused": 0.5, "late": 4.0}, False),
        ({"offered": 0.4, "refused": 50.0, "late": 50.0}, False),  # for another reason
        ({"backlog_s": 83.0}, False),  # in what calls leave
        ({"backlog_s": 85.0}, True),
        ({"offered": 3.0, "backlog_s": 1.0}, True),
    ]
    for (figures, needs), case in each(cases):
        with case:
            assert needs_another(load(**figures), 1) == needs


def with_models(name: str, state: str = "ready", **models: str) -> Report:
    details = {"state": state, "models": {f"{key}@1": {"state": s} for key, s in models.items()}}
    return Report(name, "worker", 0.0, WindowDelta(60, {}, {}), details)


def test_one_is_added_at_a_time_where_a_worker_could_load_it() -> None:
    cases = [
        ((with_models("1", m="ready"), with_models("2", m="absent")), {"m@1": 2}),
        (
            (
                with_models("1", m="ready"),
                with_models("2", m="ready"),
                with_models("3", m="absent"),
            ),
            {"m@1": 3},
        ),
        (
            (
                with_models("1", m="ready"),
                with_models("2", m="loading"),
                with_models("3", m="absent"),
            ),
            {},
        ),
        ((with_models("1", m="ready"), with_models("2", m="failed")), {}),
        (
            (with_models("1", m="absent"), with_models("2", m="absent")),
            {},
        ),  # a request brings the first
        ((with_models("1", m="ready"), with_models("2", "draining", m="absent")), {}),
        ((), {}),
    ]
    for (reports, found), case in each(cases):
        with case:
            ready = candidates(ReportSet(reports))
            assert replicas([load(offered=5.0)], ready) == found
            assert replicas([load()], ready) == {}
