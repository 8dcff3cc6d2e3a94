"""Calls in an open loop, as a benchmark sees them: what is to be sent, and what came of it."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from signal import SIGTERM
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ops.bench.harness.errors import BenchError
from ops.bench.probes.cpu import Meter
from ops.processes.children import die_with_parent

Column = NDArray[Any]
_GRACE_S = 15.0


@dataclass(frozen=True, slots=True)
class Load:
    """Requests to one URL. due_s: seconds from the start, in order. They take the bodies in turn,
    and the outputs that are expected of these (None: any). keys: an API key for each body; empty:
    they come without. most_in_flight: see Generator."""

    url: str
    due_s: Sequence[float]
    bodies: Sequence[str]
    outputs: Sequence[Any] | None = None
    keys: Sequence[str] = ()
    most_in_flight: int = 0
    grace_s: float = _GRACE_S


@dataclass(frozen=True, slots=True)
class Calls:
    """What came of a load: columns with a row a call, in the order they were due.

    due_s, sent_s, ended_s: since started_s (monotonic); ended_s is nan where no answer came.
    status: 0 where no answer came. The rest is what the answer said (`answers.py`).
    cpu_s: of the generator; cpu: of what a meter read, over the whole drive.
    """

    started_s: float
    cpu_s: float
    due_s: Column
    sent_s: Column
    ended_s: Column
    status: Column
    batch_size: Column
    engine_ms: Column
    predicted_ms: Column
    padding: Column
    units: Column
    flush: Column
    degraded: Column
    right: Column
    code: Column
    cpu: Mapping[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.due_s)

    @property
    def refused(self) -> Column:
        """Which were told to come again: 429 or 503."""
        return np.isin(self.status, (429, 503))

    @property
    def latency_ms(self) -> Column:
        """From the moment each was due; nan where no answer came."""
        return (self.ended_s - self.due_s) * 1000

    @property
    def late_ms(self) -> Column:
        """How much after its due time each left."""
        return (self.sent_s - self.due_s) * 1000

    @property
    def errors(self) -> int:
        """Calls without a right answer."""
        return int(len(self) - self.right.sum())

    def in_time(self, target_ms: float) -> Column:
        """Which were answered right, and within so many milliseconds."""
        return self.right & (self.latency_ms <= target_ms)

    def miss_share(self, target_ms: float) -> float:
        """Late, refused or failed calls, over all."""
        return 1 - float(self.in_time(target_ms).mean())

    def percentiles(self, *which: float) -> list[float]:
        """Of the latencies of right answers, ms. Raises BenchError where there is none."""
        if not self.right.any():
            raise BenchError(f"none of {len(self)} calls was answered: {self.said()}")
        return [float(ms) for ms in np.percentile(self.latency_ms[self.right], which)]

    def said(self) -> dict[str, int]:
        """How often which status, and code of a refusal."""
        words = [
            f"{status} {code}".strip() for status, code in zip(self.status, self.code, strict=True)
        ]
        return {word: words.count(word) for word in sorted(set(words))}

    def since(self, due_s: float) -> "Calls":
        """Without those that were due before: the warm-up."""
        return self.select(self.due_s >= due_s)

    def between(self, since_s: float, until_s: float) -> "Calls":
        """Those that were due from one monotonic moment to another."""
        due_s = self.started_s + self.due_s
        return self.select((due_s >= since_s) & (due_s < until_s))

    def select(self, which: Column) -> "Calls":
        columns = {name: getattr(self, name)[which] for name in COLUMNS}
        return replace(self, **columns)


COLUMNS = [found.name for found in fields(Calls) if found.type is Column]


class Driver:
    """The generator's process: entered, it is ready; `go` lets it begin."""

    def __init__(self, load: Load, meter: Meter | None = None) -> None:
        self._meter = meter
        self._before: Mapping[str, float] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="millrace-calls-")
        plan = {found.name: getattr(load, found.name) for found in fields(Load)}
        Path(self._folder.name, "plan.json").write_text(json.dumps(plan))
        command = [sys.executable, "-m", "ops.bench.load.generator", self._folder.name]
        self._process = subprocess.Popen(
            die_with_parent(command, SIGTERM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._tell, self._told = self._process.stdin, self._process.stdout

    def __enter__(self) -> "Driver":
        try:
            self._hear("ready")
        except BenchError:
            self._end()
            raise
        return self

    def go(self) -> None:
        self._before = self._meter.read() if self._meter else {}
        print(file=self._tell, flush=True)

    def stop(self) -> None:
        """Nothing more is sent."""
        self._tell.close()

    def calls(self) -> Calls:
        """Waits for the last answer; all that was sent."""
        self._hear("driven")
        now = self._meter.read() if self._meter else {}
        if self._process.wait():
            raise BenchError("the load generator failed; see above")
        with np.load(Path(self._folder.name, "calls.npz"), allow_pickle=False) as found:
            columns: dict[str, Any] = {name: found[name] for name in COLUMNS}
            started_s, cpu_s = float(found["started_s"]), float(found["cpu_s"])
        used = {name: now[name] - before_s for name, before_s in self._before.items()}
        return Calls(started_s, cpu_s, **columns, cpu=used)

    def _hear(self, word: str) -> None:
        if self._told.readline().strip() != word:
            raise BenchError("the load generator failed; see above")

    def _end(self) -> None:
        self._process.kill()
        with self._process:
            self._folder.cleanup()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()


def drive(load: Load, meter: Meter | None = None) -> Calls:
    """Sends all of it, and waits for the last answer."""
    with Driver(load, meter) as driver:
        driver.go()
        return driver.calls()
