"""Work of a model in the hands of its workers, as they report it."""

from collections.abc import Iterable
from dataclasses import dataclass

from jobs.telemetry.reports.reports import Report, ReportSet


@dataclass(frozen=True, slots=True)
class Hand:
    """Work of a model in one worker."""

    worker: str  #: its incarnation
    slices: float = 0.0  #: leased by it
    items: int = 0  #: in its launches in flight
    launched_s: float = 0.0  #: age of the oldest of them; 0: none
    alone_s: float | None = None  #: predicted launch of the shortest input alone; None: not known


def hands(workers: Iterable[Report], key: str) -> tuple[Hand, ...]:
    """Returns what each worker has that serves a model, those with the most slices first."""
    found = [_hand(report, key) for report in workers if _slots(report, key)]
    return tuple(sorted(found, key=lambda hand: -hand.slices))


def alone_s(hands: Iterable[Hand]) -> float:
    """Returns the predicted launch of one input alone, in the fastest worker; 0: not known."""
    return min((hand.alone_s for hand in hands if hand.alone_s is not None), default=0.0)


def _slots(report: Report, key: str) -> float:
    return ReportSet([report]).gauge("millrace_model_slots", model=key) or 0.0


def _hand(report: Report, key: str) -> Hand:
    status = report.details.get("models", {}).get(key, {})
    launches = [one for one in status.get("launches", ()) if one["items"]]
    since = min((one["since"] for one in launches), default=report.at)
    return Hand(
        worker=report.name,
        slices=ReportSet([report]).gauge("millrace_slices_in_hand", model=key) or 0.0,
        items=sum(one["items"] for one in launches),
        launched_s=max(0.0, report.at - since),
        alone_s=min(map(_alone_s, status.get("profile", {}).values()), default=None),
    )


def _alone_s(times: dict[str, float | None]) -> float:
    """Returns the launch of one input where nothing else runs, else of one input."""
    alone_ms = times.get("alone_ms")
    return ((times.get("one_ms") or 0.0) if alone_ms is None else alone_ms) / 1000
