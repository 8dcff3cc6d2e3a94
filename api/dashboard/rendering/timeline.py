"""Timeline of slices: lines of bars, one or more per worker."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from jobs.store.jobs.detail import SliceRun

MOST_RUNS = 400
_MOST_LINES = 24
_LEAST = 0.3
_TALL = 10.0
_LEAST_TALL = 1.5  # that one failure of many is seen


@dataclass(frozen=True, slots=True)
class Part:
    """Share of a bar's height, of 10."""

    name: str  #: outcome, or running
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Bar:
    """Run of a slice."""

    x: float  #: start, percent of the timeline
    width: float  #: percent of the timeline
    run: SliceRun

    @property
    def parts(self) -> Sequence[Part]:
        """Outcomes of the items: those that failed lie below, by their share."""
        if not self.run.finished_at:
            return [Part("running", 0.0, _TALL)]
        ended = self.run.n_succeeded + self.run.n_failed
        if not ended:
            return [Part("cancelled", 0.0, _TALL)]
        tall = _TALL * self.run.n_failed / ended
        if self.run.n_failed and self.run.n_succeeded:
            tall = min(max(tall, _LEAST_TALL), _TALL - _LEAST_TALL)
        parts = [Part("succeeded", 0.0, _TALL - tall), Part("failed", _TALL - tall, tall)]
        return [part for part in parts if part.height]


@dataclass(slots=True)
class Line:
    """Line of a worker; its bars don't overlap."""

    worker: int
    name: str
    until: datetime
    bars: list[Bar] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Timeline of a job."""

    since: datetime
    until: datetime
    lines: Sequence[Line]
    left_out: int


def timeline(runs: Sequence[SliceRun], now: datetime) -> Timeline | None:
    """Lays out the runs of `jobs.store.jobs.detail.runs`; returns None without runs."""
    if not runs:
        return None
    since = runs[0].claimed_at
    until = max(run.finished_at or now for run in runs)
    span_s = max((until - since).total_seconds(), 0.001)
    lines: list[Line] = []
    left_out = 0
    for run in runs:
        line = _line(lines, run)
        if line is None:
            left_out += 1
            continue
        line.until = run.finished_at or now
        x = 100 * (run.claimed_at - since).total_seconds() / span_s
        width = 100 * (line.until - run.claimed_at).total_seconds() / span_s
        line.bars.append(Bar(x, max(width, _LEAST), run))
    lines.sort(key=lambda line: line.worker)
    return Timeline(since, until, lines, left_out)


def _line(lines: list[Line], run: SliceRun) -> Line | None:
    """Returns the worker's first free line, or a new one; None if there are too many."""
    for line in lines:
        if line.worker == run.worker and line.until <= run.claimed_at:
            return line
    if len(lines) >= _MOST_LINES:
        return None
    name = run.worker_name or f"worker {run.worker}"
    lines.append(Line(run.worker, name, run.claimed_at))
    return lines[-1]
