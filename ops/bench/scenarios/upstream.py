"""`millrace bench upstream`: a model behind an HTTP API, with a latency that varies and an unknown
number of slots, half of which then disappear."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import httpx

from jobs import clock
from jobs.calls import keys
from jobs.calls import redis as call_redis
from jobs.calls.profile import Profile
from jobs.models.model import Model
from ops.bench.harness.child_process import child
from ops.bench.harness.models_files import models_file
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.repeat import repeat
from ops.bench.harness.scale import Scale
from ops.bench.load.client import Client
from ops.bench.results.plots import DARK, LIGHT, TARGET_COLOUR, label, picture
from ops.bench.results.report import Report, scenario

_SLOTS, _FEWER_SLOTS = 64, 32
_BATCH = 100  # items
_BATCHES = 40
_CLIENTS = 4  # that keep all slots busy, a batch at a time each
_BUSY_S = 60.0
_SETTLING_S = 10.0  # after a change, until the limit is steady
_POLL_S, _SAMPLE_S = 0.02, 0.5


def _model(port: int) -> Model:
    """Model behind the upstream, which listens there."""
    options = {
        "url": f"http://127.0.0.1:{port}/answer",
        "body": {"text": "$input"},
        "output": "/output",
        "concurrency": {"max": 128},
    }
    return Model("theirs", "1", "http", target_ms=5000, options=options)


@dataclass(frozen=True, slots=True)
class Sample:
    """State of both ends."""

    counts: dict[str, float]  #: of the upstream
    limit: int  #: requests that the worker allows itself


@scenario("upstream", "batch_p95_s <= 5")
def run(report: Report, scale: Scale) -> Any:
    """Runs one batch after the other; then several at a time; then these on half the capacity."""
    with (
        child("ops.bench.load.servers.fake_upstream", str(_SLOTS)) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{(port := server.receive())}", timeout=10) as http,
        own_platform(models=models_file(_model(port))) as platform,
    ):
        watch = _Watch(http, platform.settings.redis_url)
        with repeat(_SAMPLE_S, watch.sample):
            _one_by_one(report, platform.url, max(5, int(scale.seconds(_BATCHES))))
            _busy(report, platform.url, watch, scale.seconds(_BUSY_S), "")
            say(f"upstream: from now on it has {_FEWER_SLOTS} slots")
            http.post("/capacity", params={"slots": _FEWER_SLOTS})
            changed_s = watch.samples[-1].counts["at_s"]
            _busy(report, platform.url, watch, scale.seconds(_BUSY_S), "half_")
    return _picture(watch.samples, changed_s)


def _one_by_one(report: Report, url: str, batches: int) -> None:
    """Posts each batch once the one before has ended."""
    with closing(Client(url, _POLL_S)) as client:
        took_s = [_batch(client, n) for n in range(batches)]
    report.percentiles("batch_{}_s", took_s, 50, 95, 100)
    report.add(batches=batches)


def _busy(report: Report, url: str, watch: "_Watch", seconds: float, prefix: str) -> None:
    """Keeps every slot busy. The time in which the limit settles counts for the latency alone."""
    until_s = clock.monotonic() + seconds

    def run_client(number: int) -> list[float]:
        """Runs batches; returns their seconds."""
        took_s = []
        with closing(Client(url, _POLL_S)) as client:
            while clock.monotonic() < until_s:
                took_s.append(_batch(client, number))
        return took_s

    with ThreadPoolExecutor(_CLIENTS) as clients:
        running = clients.map(run_client, range(_CLIENTS))
        clock.sleep(min(_SETTLING_S, seconds / 2))
        first = watch.sample().counts
        clock.sleep(max(0.0, until_s - clock.monotonic()))
        last = watch.sample().counts
        took_s = [each for found in running for each in found]
    report.percentiles(f"{prefix}busy_batch_{{}}_s", took_s, 95)
    more = {name: last[name] - first[name] for name in first}
    report.add(
        prefix,
        busy_items_per_s=more["served"] / more["at_s"],
        utilisation=more["slot_s"] / more["at_s"] / last["slots"],
        refused_share=more["refused"] / (more["served"] + more["refused"]),
    )


def _batch(client: Client, number: int) -> float:
    """Seconds from posting a batch to its last result."""
    texts = [f"text {number} {n}" for n in range(_BATCH)]
    return client.run_job("theirs", texts, [text.upper() for text in texts]).seconds


class _Watch:
    """Samples of the upstream's counters and the worker's limit."""

    def __init__(self, http: httpx.Client, redis_url: str) -> None:
        self._http, self.samples = http, list[Sample]()
        self._redis = call_redis.connect(redis_url, timeout_s=5)
        self._lock = threading.Lock()

    def sample(self) -> Sample:
        """Takes a sample now."""
        with self._lock:
            counts: dict[str, float] = self._http.get("/counts").json()
            packed: Any = self._redis.hget(keys.Keys("theirs@1")("pool"), "profile")
            sample = Sample(counts, Profile.unpack(packed or b"").slots)
            self.samples.append(sample)
            return sample


def _picture(samples: Sequence[Sample], changed_s: float) -> Any:
    figure, axes = picture(1, 8, 3)
    since_s = samples[0].counts["at_s"]
    at_s = [sample.counts["at_s"] - since_s for sample in samples]
    for name, values, colour in (
        ("capacity of the upstream", [s.counts["slots"] for s in samples], "#999999"),
        ("in flight", [s.counts["busy"] for s in samples], LIGHT),
        ("limit that the worker found", [s.limit for s in samples], DARK),
    ):
        axes.step(at_s, values, where="post", color=colour, label=name)
    axes.axvline(changed_s - since_s, color=TARGET_COLOUR, linewidth=0.8)
    axes.set_ylim(bottom=0)
    title = "Batches of 100, one at a time and then four; capacity halves"
    label(axes, title, "s", "requests")
    axes.legend(loc="lower left", ncols=3)
    return figure
