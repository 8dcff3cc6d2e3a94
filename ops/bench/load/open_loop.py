"""Open-loop calls of a benchmark: the load that is sent, and the responses as columns."""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from jobs import clock
from ops.bench.harness.child_process import ChildProcess, child
from ops.bench.harness.errors import BenchError
from ops.bench.probes.cpu import Meter

T = TypeVar("T")
Column = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Load:
    """Requests to one URL; they take the bodies, outputs and keys in turn."""

    url: str
    due_s: Sequence[float]  #: seconds from the start, in order
    bodies: Sequence[str]  #: JSON
    outputs: Sequence[Any] | None = None  #: expected output of each body; None: any
    keys: Sequence[str] = ()  #: API key of each body; empty: none
    max_in_flight: int = 0  #: requests wait above it (a closed loop); 0: unbounded
    grace_s: float = 15.0  #: wait for responses after the last request


@dataclass(frozen=True, slots=True)
class Calls:
    """Results of a load: columns with a row a call, in the order of the due times."""

    started_s: float  #: monotonic
    cpu_s: float  #: CPU of the generator
    due_s: Column  #: since started_s
    sent_s: Column  #: since started_s
    ended_s: Column  #: since started_s; nan without a response
    status: Column  #: 0 without a response
    batch_size: Column
    engine_ms: Column
    predicted_ms: Column
    padding: Column
    units: Column
    flush: Column
    degraded: Column
    right: Column
    code: Column
    job: Column
    cpu: Mapping[str, float] = field(default_factory=dict)  #: seconds by part, from the meter

    def __len__(self) -> int:
        return len(self.due_s)

    @property
    def refused(self) -> Column:
        """True where the client was asked to retry: 429 or 503."""
        return np.isin(self.status, (429, 503))

    @property
    def latency_ms(self) -> Column:
        """Time from the due time to the response; nan without one."""
        return (self.ended_s - self.due_s) * 1000

    @property
    def late_ms(self) -> Column:
        """Delay from the due time to the sending."""
        return (self.sent_s - self.due_s) * 1000

    @property
    def errors(self) -> int:
        """Number of calls without the right response."""
        return int(len(self) - self.right.sum())

    @property
    def failed(self) -> int:
        """Number of errors that are no refusals."""
        return int((~self.right & ~self.refused).sum())

    @property
    def cpu_ms(self) -> float:
        """CPU of all parts, a call."""
        return sum(self.cpu.values()) * 1000 / len(self)

    def cpu_ms_of(self, part: str) -> float:
        """CPU of one part, a call."""
        return self.cpu[part] * 1000 / len(self)

    def all_right(self) -> "Calls":
        """Returns these calls. Raises BenchError where one has no right response."""
        if self.errors:
            raise BenchError(f"{self.errors} of {len(self)} calls failed: {self.statuses()}")
        return self

    def in_time(self, target_ms: float) -> Column:
        """True where the response was right and within the target."""
        return self.right & (self.latency_ms <= target_ms)

    def miss_share(self, target_ms: float) -> float:
        """Share of late, refused or failed calls."""
        return 1 - float(self.in_time(target_ms).mean())

    def percentiles(self, *which: float) -> list[float]:
        """Percentiles of the latencies of right responses, ms. Raises BenchError without any."""
        if not self.right.any():
            raise BenchError(f"none of {len(self)} calls was answered: {self.statuses()}")
        return [float(ms) for ms in np.percentile(self.latency_ms[self.right], which)]

    def statuses(self) -> dict[str, int]:
        """Counts by status and error code."""
        words = [
            f"{status} {code}".strip() for status, code in zip(self.status, self.code, strict=True)
        ]
        return {word: words.count(word) for word in sorted(set(words))}

    def __str__(self) -> str:
        p50, p95, p99 = self.percentiles(50, 95, 99)
        return f"p50 {p50:.1f}, p95 {p95:.1f}, p99 {p99:.1f} ms; {self.statuses()}"

    def since(self, due_s: float) -> "Calls":
        """Calls that were due then or later: those after the warm-up."""
        return self.select(self.due_s >= due_s)

    def between(self, since_s: float, until_s: float) -> "Calls":
        """Calls that were due between two monotonic times."""
        due_s = self.started_s + self.due_s
        return self.select((due_s >= since_s) & (due_s < until_s))

    def phase(self, since_s: float, until_s: float) -> "Calls":
        """Calls that were due between two monotonic times; where none was, the last one before."""
        rows = self.started_s + self.due_s < until_s
        count = len(self.between(since_s, until_s))
        return self.select(np.flatnonzero(rows)[-max(1, count) :])

    def select(self, rows: Column) -> "Calls":
        """Calls of these rows."""
        columns = {name: getattr(self, name)[rows] for name in COLUMNS}
        return replace(self, **columns)


COLUMNS = [column.name for column in fields(Calls) if column.type is Column]


class Driver:
    """Process of the generator, ready to send."""

    def __init__(self, process: ChildProcess, folder: Path, meter: Meter | None) -> None:
        self._process, self._folder, self._meter = process, folder, meter
        self._before: Mapping[str, float] = {}

    def go(self) -> None:
        """Begins to send."""
        self._before = self._meter.read() if self._meter else {}
        self._process.send()

    def stop(self) -> None:
        """Ends sending."""
        self._process.end_input()

    def calls(self) -> Calls:
        """Waits for the last response."""
        self._process.receive()
        now = self._meter.read() if self._meter else {}
        self._process.wait()
        with np.load(self._folder / "calls.npz", allow_pickle=False) as found:
            columns: dict[str, Any] = {name: found[name] for name in COLUMNS}
            started_s, cpu_s = float(found["started_s"]), float(found["cpu_s"])
        used = {name: now[name] - before_s for name, before_s in self._before.items()}
        return Calls(started_s, cpu_s, **columns, cpu=used)


@contextmanager
def driver(load: Load, meter: Meter | None = None) -> Iterator[Driver]:
    """Starts a generator for a load. meter: measures the CPU of processes over the drive."""
    with tempfile.TemporaryDirectory(prefix="millrace-calls-") as folder:
        plan = {part.name: getattr(load, part.name) for part in fields(Load)}
        Path(folder, "plan.json").write_text(json.dumps(plan))
        with child("ops.bench.load.generator", folder) as process:
            process.receive()
            yield Driver(process, Path(folder), meter)


def drive(load: Load, meter: Meter | None = None) -> Calls:
    """Sends a whole load and waits for the last response."""
    with driver(load, meter) as running:
        running.go()
        return running.calls()


def drive_during(load: Load, warm_up_s: float, work: Callable[[], T]) -> tuple[Calls, T]:
    """Calls that were due while `work` ran, after a warm-up, and its result.

    Raises BenchError where the load ended before the work.
    """
    with driver(load) as running:
        running.go()
        clock.sleep(warm_up_s)
        since_s = clock.monotonic()
        result = work()
        until_s = clock.monotonic()
        running.stop()
        calls = running.calls()
    if until_s > calls.started_s + load.due_s[-1]:
        raise BenchError(f"the work took longer than {load.due_s[-1]:g} s of calls")
    return calls.between(since_s, until_s), result
