"""Jobs and calls of one model, and how busy its device is meanwhile."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jobs import clock, ids
from jobs.models import models_file
from jobs.store import db
from jobs.store.jobs import detail
from ops.bench.harness.platform import BenchError
from ops.bench.load.ndjson_client import Stream
from ops.bench.probes import gpu_utilization
from ops.supervisor.platform import Platform

_CLIENTS = 8
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class CompletedJob:
    """A job that ended. run_s: from its first claim to its end; whole_s: from its first byte to
    its last result read; busy_share: of run_s, in which the device was busy."""

    items: int
    run_s: float
    whole_s: float
    busy_share: float

    @property
    def items_per_s(self) -> float:
        return self.items / self.run_s


class OneModel:
    """One model on a platform that runs on a models file. by_driver: whether its device is a GPU,
    whose driver tells how busy it is."""

    def __init__(self, platform: Platform, name: str, by_driver: bool) -> None:
        self.name, self._platform = name, platform
        self._stream = Stream(platform.url)
        self._watched = by_driver and gpu_utilization.is_watchable()
        assert platform.settings.models
        self.file: Path = platform.settings.models

    def run_job(self, texts: Sequence[str]) -> CompletedJob:
        with gpu_utilization.GpuWatch() if self._watched else nullcontext() as watch:
            since_s = clock.monotonic()
            id = self._stream.post(self.name, texts)
            self.read(id)
            whole_s = clock.monotonic() - since_s
        job = self._stream.job(id)
        started_at, finished_at = map(
            datetime.fromisoformat, (job["started_at"], job["finished_at"])
        )
        run_s = (finished_at - started_at).total_seconds()
        share = (
            gpu_utilization.mean_share(watch.samples, started_at, finished_at) if watch else None
        )
        if share is None:
            share = self._launched_s(id) / run_s
        return CompletedJob(len(texts), run_s, whole_s, share)

    def start_job(self, texts: Sequence[str]) -> str:
        """Returns once it runs."""
        job = self._stream.post(self.name, texts)
        while not self._stream.job(job)["started_at"]:
            clock.sleep(_POLL_S)
        return job

    def ended(self, job: str) -> bool:
        return bool(self._stream.job(job)["finished_at"])

    def read(self, job: str) -> None:
        """Reads its results until there are no more to come."""
        read = sum(1 for line in self._stream.results(job) if b'"succeeded"' in line)
        total = self._stream.job(job)["counts"]["total"]
        if read != total:
            raise BenchError(f"{read} of {total} items succeeded")

    def calls(self, texts: Sequence[str], seconds: float, per_s: float) -> list[float]:
        """An open loop of single calls: ms from when each was due to its answer."""
        first_s = clock.monotonic()
        due = [first_s + n / per_s for n in range(round(seconds * per_s))]
        with ThreadPoolExecutor(_CLIENTS) as clients:
            parts = clients.map(
                lambda client: self._client(due[client::_CLIENTS], texts[client::_CLIENTS]),
                range(_CLIENTS),
            )
            return [latency_ms for part in parts for latency_ms in part]

    def _client(self, due: Sequence[float], texts: Sequence[str]) -> list[float]:
        latencies_ms = []
        with closing(Stream(self._platform.url)) as stream:
            for n, due_s in enumerate(due):
                clock.sleep(max(0.0, due_s - clock.monotonic()))
                stream.call(self.name, texts[n % len(texts)])
                latencies_ms.append((clock.monotonic() - due_s) * 1000)
        return latencies_ms

    def _launched_s(self, job: str) -> float:
        """The time of its launches, over how many are in flight."""
        id = ids.parse("job", job)
        assert id
        database = db.connect(self._platform.settings.database_url, pool_size=1)
        with database.connect() as tx:
            engine_ms = detail.launch_figures(tx, id).engine_ms
        database.dispose()
        limits = models_file.load(self.file).resolve(self.name).limits
        return float(engine_ms / 1000 / limits.in_flight)
