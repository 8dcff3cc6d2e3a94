"""Items that dearer workers leave to cheaper ones."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jobs.models.model import Model
from jobs.scaling.advice.offers import Offer, offers
from jobs.telemetry.reports.reports import ReportSet


@dataclass(frozen=True, slots=True)
class Cheaper:
    """Workers of one model, some of which leave its items to the others."""

    left_by: tuple[str, ...] = ()  #: pools of those that leave items
    left_to: tuple[str, ...] = ()  #: pools of the others
    share: float = 1.0  #: of the cost of an item there: the cost at the cheapest
    drain_s: float = 0.0  #: until the others have run all items that wait, predicted

    @classmethod
    def from_offers(cls, its: Iterable[Offer], leaving: set[str]) -> "Cheaper":
        """Compares those that leave items with the others."""
        left = [offer for offer in its if offer.worker in leaving]
        others = [offer for offer in its if offer.worker not in leaving]
        if not left or not others:
            return cls()
        per_s = sum(1 / max(offer.drain_s, 1e-6) for offer in others)
        return cls(
            tuple(sorted({offer.pool for offer in left})),
            tuple(sorted({offer.pool for offer in others})),
            min(o.price * o.item_s for o in others) / min(o.price * o.item_s for o in left),
            1 / per_s,
        )


def from_reports(reports: ReportSet, models: Iterable[Model]) -> Mapping[str, Cheaper]:
    """Returns them by name@version, of the models that have such workers."""
    leaving: dict[str, set[str]] = {}
    for report in reports.by_kind("worker").reports:
        for key, model in report.details.get("models", {}).items():
            if model.get("leaves_items"):
                leaving.setdefault(key, set()).add(report.name)
    if not leaving:
        return {}
    items = reports.gauge_by("millrace_queue_items", "model")
    used = reports.gauge_by("millrace_pool_capacity_used", "pool")
    found = offers(list(models), reports, items, used)
    return {
        key: Cheaper.from_offers(its, leaving[key]) for key, its in found.items() if key in leaving
    }
