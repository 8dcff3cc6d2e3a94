"""`millrace bench upstream`: a model that someone else serves, with a latency that varies and room
for so many at a time, which nobody tells; then half of it goes away."""

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from signal import SIGTERM
from typing import Any

import httpx
import numpy as np
import orjson
from matplotlib.figure import Figure

from jobs import clock
from jobs.calls import redis as call_redis
from jobs.calls.profile import Profile
from ops.bench.harness.platform import BenchError, own_platform, save_picture, say
from ops.bench.harness.scale import Scale
from ops.bench.load.ndjson_client import Stream
from ops.bench.results.report import Report
from ops.processes.children import die_with_parent

ASKED = {"batch_p95_s": "<= 5"}
_SLOTS, _FEWER_SLOTS = 64, 32
_BATCH = 100
_BATCHES = 40
_AT_ONCE = 4  # batches, where it is busy all the time
_BUSY_S = 60.0
_SETTLING_S = 10.0  # after a change: what follows is steady
_LOOK_S, _SAMPLE_S = 0.02, 0.5
_MODELS = """
[[model]]
name = "theirs"
version = "1"
engine = "http"
target_ms = 5000

[model.options]
url = "http://127.0.0.1:{port}/answer"
body = {{ text = "$input" }}
output = "/output"
concurrency = {{ max = 128 }}
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """limit: as many requests as the worker allows itself, as it told last."""

    counts: dict[str, float]
    limit: int


def run(effort: Scale) -> None:
    """One batch after the other; then several at a time; then these with half the capacity."""
    report = Report("upstream", ASKED, quick=effort.quick)
    with _upstream(_SLOTS) as http, own_platform(models=_models(http)) as platform:
        watch = _Watch(http, platform.settings.redis_url)
        with watch:
            _one_by_one(report, platform.url, max(5, int(effort.seconds(_BATCHES))))
        with watch:
            _busy(report, platform.url, watch, effort.seconds(_BUSY_S), "")
            say(f"upstream: from now on it has {_FEWER_SLOTS} slots")
            http.post("/capacity", params={"slots": _FEWER_SLOTS})
            changed_s = watch.samples[-1].counts["at_s"]
            _busy(report, platform.url, watch, effort.seconds(_BUSY_S), "half_")
    save_picture("upstream", _picture(watch.samples, changed_s), quick=effort.quick)
    report.finish()


def _models(http: httpx.Client) -> str:
    return _MODELS.format(port=http.base_url.port)


@contextmanager
def _upstream(slots: int) -> Iterator[httpx.Client]:
    command = [sys.executable, "-m", "ops.bench.load.servers.fake_upstream", str(slots)]
    process = subprocess.Popen(die_with_parent(command, SIGTERM), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as http:
            yield http
    finally:
        process.terminate()
        process.communicate()


def _one_by_one(report: Report, url: str, batches: int) -> None:
    """Each is posted when the one before has ended."""
    stream = Stream(url, _LOOK_S)
    took_s = [_batch(stream, n) for n in range(batches)]
    stream.close()
    p50, p95 = np.percentile(took_s, [50, 95])
    report.add(batch_p50_s=p50, batch_p95_s=p95, batch_max_s=max(took_s), batches=batches)


def _busy(report: Report, url: str, watch: "_Watch", seconds: float, prefix: str) -> None:
    """As many batches at a time as keep every slot in work. What it settles in counts for the
    latency alone."""
    until_s = clock.monotonic() + seconds

    def one_client(number: int) -> list[float]:
        stream, took_s = Stream(url, _LOOK_S), []
        while clock.monotonic() < until_s:
            took_s.append(_batch(stream, number))
        stream.close()
        return took_s

    with ThreadPoolExecutor(_AT_ONCE) as clients:
        running = [clients.submit(one_client, n) for n in range(_AT_ONCE)]
        clock.sleep(min(_SETTLING_S, seconds / 2))
        first = watch.look().counts
        clock.sleep(max(0.0, until_s - clock.monotonic()))
        last = watch.look().counts
        took_s = [each for future in running for each in future.result()]
    passed_s, asked = last["at_s"] - first["at_s"], _more("served", first, last)
    refused = _more("refused", first, last)
    report.add(
        **{
            f"{prefix}busy_batch_p95_s": float(np.percentile(took_s, 95)),
            f"{prefix}busy_items_per_s": asked / passed_s,
            f"{prefix}utilisation": _more("slot_s", first, last) / passed_s / last["slots"],
            f"{prefix}refused_share": refused / (asked + refused),
        }
    )


def _more(name: str, first: dict[str, float], last: dict[str, float]) -> float:
    return last[name] - first[name]


def _batch(stream: Stream, number: int) -> float:
    """Seconds from posting it to its last result; every one is checked."""
    texts = [f"text {number} {n}" for n in range(_BATCH)]
    since_s = clock.monotonic()
    job = stream.post("theirs", texts)
    found = [orjson.loads(line)["output"] for line in stream.results(job)]
    took_s = clock.monotonic() - since_s
    if found != [text.upper() for text in texts]:
        raise BenchError(f"in place of {_BATCH} texts in capitals: {found}")
    return took_s


class _Watch:
    """Looks at both ends every half second, while it is entered."""

    def __init__(self, http: httpx.Client, redis_url: str) -> None:
        self._http, self.samples = http, list[Sample]()
        self._redis = call_redis.connect(redis_url, timeout_s=5)
        self._looking = threading.Lock()

    def look(self) -> Sample:
        with self._looking:
            counts: dict[str, float] = self._http.get("/counts").json()
            packed: Any = self._redis.hget(call_redis.Keys("theirs@1")("pool"), "profile")
            sample = Sample(counts, Profile.unpack(packed or b"").slots)
            self.samples.append(sample)
            return sample

    def _run(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            self.look()

    def __enter__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def _picture(samples: Sequence[Sample], changed_s: float) -> Figure:
    figure = Figure(figsize=(8, 3), layout="constrained")
    axes = figure.subplots()
    since_s = samples[0].counts["at_s"]
    at_s = [sample.counts["at_s"] - since_s for sample in samples]
    axes.step(at_s, [s.counts["slots"] for s in samples], where="post", color="#999999",
              label="capacity of the upstream")  # fmt: skip
    axes.plot(at_s, [s.counts["busy"] for s in samples], color="#9ecae1", label="in flight")
    axes.step(at_s, [s.limit for s in samples], where="post", color="#08519c",
              label="limit that the worker found")  # fmt: skip
    axes.axvline(changed_s - since_s, color="#de2d26", linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("s")
    axes.set_ylabel("requests")
    axes.legend(loc="lower left", ncols=3)
    axes.set_title("Batches of 100, one at a time and then four; capacity halves")
    return figure
