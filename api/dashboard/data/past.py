"""Figures of a subject over a range of time, as charts and a table show them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query

from api.context import Context
from api.dashboard.data.adaptive_cache import AdaptiveCache
from api.routes.admin.history import SPANS
from api.schemas.history import HistoryRange
from jobs import clock
from jobs.store.db import CONNECTION_ERRORS
from jobs.store.monitoring import history
from jobs.store.monitoring.history import PointRow
from jobs.store.tenancy import EVERYBODY
from jobs.telemetry.reports.figures import Figures

Span = Annotated[HistoryRange, Query(alias="range")]
Line = Sequence[float | None]
_TITLES: Mapping[HistoryRange, str] = {
    "30m": "30 minutes",
    "6h": "6 hours",
    "24h": "24 hours",
    "7d": "7 days",
    "30d": "30 days",
}
_MOST_ROWS = 24  # of the table
_rows: AdaptiveCache[list[PointRow]] = AdaptiveCache()


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over the times of a `Past`."""

    title: str
    unit: str
    lines: Mapping[str, Line]


@dataclass(frozen=True, slots=True)
class Past:
    """Points of a subject, one for each step of a range: also of those that nothing is known of."""

    span: HistoryRange
    times: Sequence[datetime]
    points: Sequence[Figures | None]
    about_model: bool
    about_launches: bool  #: of a worker or pool: it has no refusals, nor a queue
    is_away: bool = False  #: the database doesn't answer

    @property
    def title(self) -> str:
        """Length of the range in words."""
        return _TITLES[self.span]

    @property
    def ranges(self) -> Mapping[HistoryRange, str]:
        """Ranges to choose from, with their lengths in words."""
        return _TITLES

    @property
    def is_known(self) -> bool:
        """True if there is any point."""
        return any(point is not None for point in self.points)

    @property
    def has_tokens(self) -> bool:
        """True if anything was generated."""
        return any(point and point.tokens_s is not None for point in self.points)

    @property
    def charts(self) -> list[Chart]:
        """Charts of what the subject has figures of."""
        busy, unit, factor = "Utilization", "%", 100.0
        if self.about_model:
            busy, unit, factor = "Devices busy", "devices", 1.0
        of = "launches" if self.about_launches else "calls"
        found = [
            Chart(
                "Throughput", "per second", self._lines({"calls": "calls_s", "items": "items_s"})
            ),
            Chart("Tokens", "per second", self._lines({"generated": "tokens_s"})),
            Chart(f"Latency of {of}", "ms", self._lines({"p50": "p50_s", "p95": "p95_s"}, 1000.0)),
            Chart("Waiting", "calls and items", self._lines({"most": "waiting"})),
            Chart(
                "Refused and failed",
                "per second",
                self._lines({"refused calls": "refused_s", "failed": "failed_s"}),
            ),
            Chart(busy, unit, self._lines({"busy": "busy"}, factor)),
        ]
        return [chart for chart in found if chart.lines]

    @property
    def table(self) -> list[tuple[datetime, Figures]]:
        """Some known points, evenly spread, newest first."""
        known = [(at, its) for at, its in zip(self.times, self.points, strict=True) if its]
        step = -(-len(known) // _MOST_ROWS) or 1
        return known[::-step]

    def _lines(self, names: Mapping[str, str], factor: float = 1.0) -> dict[str, Line]:
        """Returns lines by name, without those that are nowhere known."""
        found = {
            name: [_scaled(point, figure, factor) for point in self.points]
            for name, figure in names.items()
        }
        return {name: line for name, line in found.items() if any(v is not None for v in line)}


def _scaled(point: Figures | None, figure: str, factor: float) -> float | None:
    value: float | None = getattr(point, figure) if point else None
    return None if value is None else factor * value


def load(context: Context, about: str, span: HistoryRange) -> Past:
    """Returns the past of a subject."""
    length_s, step_s = SPANS[span]

    def read() -> list[PointRow]:
        with context.acting(EVERYBODY) as tx:
            return history.read(tx, about, length_s, step_s)

    try:
        rows = _rows.get((context.settings.database_url, about, span), read)
    except CONNECTION_ERRORS:
        return away(about, span)
    return fill(about, span, rows, clock.now())


def away(about: str, span: HistoryRange) -> Past:
    """Returns a past that isn't known, as the database doesn't answer."""
    return replace(fill(about, span, [], clock.now()), is_away=True)


def fill(about: str, span: HistoryRange, rows: Sequence[PointRow], now: datetime) -> Past:
    """Returns the past with a point, or None, for each step until now."""
    length_s, step_s = SPANS[span]
    last = max([now.timestamp() // step_s * step_s, *(row.at.timestamp() for row in rows)])
    times = [datetime.fromtimestamp(last - ago_s, UTC) for ago_s in range(length_s, -1, -step_s)]
    known = {row.at: row.figures for row in rows}
    points = [known.get(at) for at in times]
    launches = about.startswith(("worker:", "pool:"))
    return Past(span, times, points, about.startswith("model:"), launches)
