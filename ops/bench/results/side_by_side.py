"""Calls alone, and while other work runs on the same processes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Generic, TypeVar

from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import Calls, Load, drive, drive_during
from ops.bench.results.report import Report

T = TypeVar("T")

_WARM_UP_S = 2.0


@dataclass(frozen=True, slots=True)
class Pair(Generic[T]):
    """Calls of one round on both sides."""

    alone: Calls
    during: Calls
    work: T  #: result of the work


def measure_pair(
    load: Callable[[Sequence[float]], Load],
    per_s: float,
    work: Callable[[], T],
    scale: Scale,
    seed: int,
    *,
    alone_s: float,
    longest_s: float,
) -> Pair[T]:
    """Drives calls alone, then while `work` runs.

    load: calls with these due times. longest_s: bound of the work.
    """
    due_s = poisson(per_s, _WARM_UP_S + scale.seconds(alone_s), seed)
    alone = drive(load(due_s)).since(_WARM_UP_S)
    during, result = drive_during(load(poisson(per_s, longest_s, seed)), _WARM_UP_S, work)
    say(f"calls alone: {alone}")
    say(f"calls with other work: {during}")
    return Pair(alone, during, result)


def report_pairs(report: Report, pairs: Sequence[Pair[Any]]) -> None:
    """Adds the figures `call_…` of calls on both sides."""
    alone = [pair.alone.percentiles(99)[0] for pair in pairs]
    during = [pair.during.percentiles(99)[0] for pair in pairs]
    report.spread(call_p99_alone_ms=alone, call_p99_ms=during)
    report.median(
        call_p50_alone_ms=(pair.alone.percentiles(50)[0] for pair in pairs),
        call_p50_ms=(pair.during.percentiles(50)[0] for pair in pairs),
    )
    report.add(
        call_p99_ratio=median(during) / median(alone),
        call_errors=sum(pair.alone.errors + pair.during.errors for pair in pairs),
    )


def plot_pairs(axes: Any, pairs: Sequence[Pair[Any]], title: str, name: str) -> None:
    """Plots the latencies of both sides."""
    from ops.bench.results.plots import distributions, latencies

    alone = latencies(pair.alone for pair in pairs)
    during = latencies(pair.during for pair in pairs)
    distributions(axes, {"alone": alone, name: during}, title)
