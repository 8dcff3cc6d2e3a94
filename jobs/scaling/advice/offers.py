"""Offers of ready workers to run a model's items, from their reports: how long, at what price."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from jobs.calls.profile import Profile, Times
from jobs.models.model import Model
from jobs.scaling import cost
from jobs.telemetry.reports.reports import Report, ReportSet

_LEAST_FREE = 0.1
"""Share of a worker that items are taken to get, however busy calls keep it."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One ready worker of a model."""

    worker: str  #: its incarnation
    pool: str
    price: float  #: of its device for an hour, in any unit
    item_s: float  #: time of an item at full launches, s
    drain_s: float = 0.0  #: time in which it alone would run all items that it serves, s

    @property
    def cost(self) -> float:
        """Price of an item, rounded: its order among others should stay while it wavers."""
        return float(f"{self.price * self.item_s:.2g}")


def offers(
    models: Iterable[Model],
    reports: ReportSet,
    items: Mapping[str, float],
    used: Mapping[str, float],
) -> dict[str, list[Offer]]:
    """Returns the offers for each model, by name@version, whose ready workers differ in price.

    items: that wait, by name@version of the model that serves them; used: share of each pool that
    calls use, 0 to 1. A worker that has not measured a model makes no offer for it."""
    ready = [_Ready.from_report(report) for report in _ready(reports)]
    differ = _differ(ready)
    if not differ:
        return {}
    shares = {
        model.key: cost.bucket_shares(
            reports.increase_by("millrace_lane_entries_total", "lane", model=model.key)
        )
        for model in models
    }
    by_key = {model.key: model for model in models}
    found: dict[str, list[Offer]] = {key: [] for key in differ if key in by_key}
    for worker in ready:
        item_s = {
            key: cost.entry_s(by_key[key], profile, shares[key])
            for key, profile in worker.profiles.items()
            if key in by_key
        }
        backlog_s = sum(items.get(key, 0.0) * each_s for key, each_s in item_s.items())
        drain_s = backlog_s / max(_LEAST_FREE, 1 - used.get(worker.pool, 0.0))
        for key, each_s in item_s.items():
            if key in found:
                offer = Offer(worker.name, worker.pool, worker.price, each_s, drain_s)
                found[key].append(offer)
    return found


@dataclass(frozen=True, slots=True)
class _Ready:
    """Worker that takes work."""

    name: str
    pool: str
    price: float
    profiles: Mapping[str, Profile]  #: of the models that are ready there and measured

    @classmethod
    def from_report(cls, report: Report) -> "_Ready":
        its = report.details
        profiles = {
            key: Profile(0.0, _times(model["profile"]), model.get("slots", 0))
            for key, model in its.get("models", {}).items()
            if model.get("state") == "ready" and model.get("profile")
        }
        return cls(report.name, its.get("pool", ""), float(its.get("price", 1.0)), profiles)


def _ready(reports: ReportSet) -> Iterator[Report]:
    for report in reports.by_kind("worker").reports:
        if report.details.get("state") == "ready":
            yield report


def _times(by_bucket: Mapping[str, Mapping[str, float]]) -> dict[int, Times]:
    return {
        int(bucket): Times(int(times["full_rows"]), times["full_ms"], times["one_ms"])
        for bucket, times in by_bucket.items()
    }


def _differ(workers: Iterable[_Ready]) -> set[str]:
    """Returns the models whose workers have several prices."""
    prices: dict[str, set[float]] = {}
    for worker in workers:
        for key in worker.profiles:
            prices.setdefault(key, set()).add(worker.price)
    return {key for key, its in prices.items() if len(its) > 1}
