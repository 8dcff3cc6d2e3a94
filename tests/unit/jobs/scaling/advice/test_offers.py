"""Offers of workers, as their reports tell."""

from typing import Any

import pytest

from jobs.models.model import Limits, Model
from jobs.scaling.advice.offers import Offer, offers
from jobs.telemetry.reports.reports import Report, ReportSet
from jobs.telemetry.reports.window import WindowDelta

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


def test_models_whose_workers_have_one_price_are_left_out() -> None:
    assert found(worker("1", "l4", 1.0, 400.0), worker("2", "h100", 1.0, 100.0)) == {}
    alone = worker("2", "h100", 4.0, 100.0, models={"m@1": {"state": "ready", "profile": {}}})
    assert found(worker("1", "l4", 1.0, 400.0), alone) == {}


def test_workers_that_take_no_work_offer_nothing() -> None:
    loading = {"state": "loading", "profile": {"0": times(9.0)}}
    reports = [
        worker("1", "l4", 0.5, 400.0),
        worker("2", "h100", 4.0, 100.0),
        worker("3", "l4", 0.5, 400.0, state="draining"),
        worker("4", "l4", 0.5, 400.0, models={"m@1": loading}),
    ]
    assert [offer.worker for offer in found(*reports)["m@1"]] == ["1", "2"]
