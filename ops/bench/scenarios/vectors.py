"""`millrace bench vectors`: the host's part of a job of embeddings, and calls beside it.

The engine costs the host nothing and could do 39,000 items a second on two slots, so that what is
measured is what the platform itself does for a vector: claim, queue, deliver, store, and read back.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, text

from jobs import clock
from jobs.models.model import Model
from ops.bench.data.vectors import DIMENSIONS, ITEM_S, LAUNCH_S
from ops.bench.harness.errors import BenchError
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import database_of, own_platform, say, wait_until
from ops.bench.harness.scale import Scale
from ops.bench.load import workloads
from ops.bench.load.arrivals import poisson
from ops.bench.load.client import Client
from ops.bench.load.open_loop import Calls, drive
from ops.bench.probes.cpu import Meter, whole_meter
from ops.bench.results.plots import bars, distributions, latencies, picture
from ops.bench.results.report import Report, scenario
from ops.supervisor.platform import Platform

_MODEL, _TARGET_MS, _MAX_BATCH = "vectors", 250, 1024
_ITEMS, _BEGUN = 1_200_000, 8000
_WINDOW_S, _CALLS_S, _CALLS_PER_S, _WARM_UP_S = 8.0, 8.0, 25, 2.0
_WITHIN_S = 60.0
_READ = 50_000  # results that are read back, in each format
_CHECKED = 500
_FORMATS = ("ndjson", "arrow")
_WAL = text("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
_DONE = text("SELECT coalesce(sum(n_succeeded), 0) FROM slices")


@dataclass(frozen=True, slots=True)
class _Round:
    """Items of a window of a job alone, and calls on both sides."""

    items_per_s: float
    wal_bytes: float  #: an item
    cpu_us: dict[str, float]  #: an item, by part
    read_per_s: dict[str, float]  #: results that are read back, by format
    alone: Calls
    beside: Calls


@scenario(
    "vectors",
    "vectors_items_per_s >= 30000",
    "call_p95_ratio <= 1.5",
    "wal_bytes_per_item <= 2048",
    "worker_us_per_item <= 15",
)
def run(report: Report, scale: Scale) -> Any:
    """Measures rounds, each on a platform of its own, which ends before its job does."""
    texts = [f"text number {n} of a job with short inputs" for n in range(_items(scale))]
    rounds = [_round(texts, scale, n) for n in range(scale.rounds)]
    report.spread(vectors_items_per_s=[each.items_per_s for each in rounds])
    report.median(
        wal_bytes_per_item=(each.wal_bytes for each in rounds),
        **{
            f"{part}_us_per_item": [each.cpu_us[part] for each in rounds]
            for part in rounds[0].cpu_us
        },
        **{
            f"read_{format}_per_s": [each.read_per_s[format] for each in rounds]
            for format in _FORMATS
        },
        call_p95_alone_ms=(each.alone.percentiles(95)[0] for each in rounds),
        call_p95_ms=(each.beside.percentiles(95)[0] for each in rounds),
        miss_share=(each.beside.miss_share(_TARGET_MS) for each in rounds),
    )
    figures = report.figures
    launch_ms = (LAUNCH_S + ITEM_S * _MAX_BATCH) * 1000
    waited = figures["call_p95_ms"] - launch_ms
    report.add(call_p95_ratio=max(0.0, waited) / figures["call_p95_alone_ms"])
    return _picture(rounds)


def _items(scale: Scale) -> int:
    return int(scale.seconds(_ITEMS))


def _model() -> Model:
    return sample(
        "batchstring",
        name=_MODEL,
        engine="function",
        target_ms=_TARGET_MS,
        options={"function": "ops.bench.data.vectors:embed", "samples": ["a text"]},
        limits={"max_batch": _MAX_BATCH, "in_flight": 2, "slice_items": 8192},
    )


def _check(client: Client) -> None:
    """Raises BenchError unless a small job gives vectors; warms up as well."""
    outputs = client.run_job(_MODEL, [f"text {n}" for n in range(_CHECKED)]).outputs
    if {len(output) for output in outputs} != {DIMENSIONS}:
        raise BenchError("an output is no vector of the engine's")


def _round(texts: Sequence[str], scale: Scale, seed: int) -> _Round:
    seconds = _WARM_UP_S + scale.seconds(_CALLS_S)
    due_s = poisson(_CALLS_PER_S, seconds, seed)
    with (
        own_platform(1, models_file(_model())) as platform,
        closing(Client(platform.url)) as client,
        database_of(platform) as database,
    ):
        _check(client)
        read = _read_back(client, texts[: int(scale.seconds(_READ))])
        load = workloads.infer(platform, _MODEL, texts[:500], due_s)
        alone = drive(load).since(_WARM_UP_S)
        say(f"calls alone: {alone}")
        count = _counter(database, _DONE)
        before = count()
        client.post(_MODEL, texts)
        wait_until(lambda: count() - before >= _BEGUN, "the job has begun", _WITHIN_S)
        per_s, wal_bytes, cpu_us = _window(platform, database, scale.seconds(_WINDOW_S))
        beside = drive(load).since(_WARM_UP_S)
        say(f"calls beside: {beside}")
        if count() - before >= len(texts):
            raise BenchError("the job ended before the calls; it needs more items")
    return _Round(per_s, wal_bytes, cpu_us, read, alone, beside)


def _read_back(client: Client, texts: Sequence[str]) -> dict[str, float]:
    """Runs a job to its end; returns how many of its results are read a second, by format."""
    job = client.post(_MODEL, texts)
    wait_until(lambda: client.job(job)["finished_at"], "the job has ended", _WITHIN_S)
    per_s = dict[str, float]()
    for format in _FORMATS:
        client.download(f"/jobs/{job}/results?format={format}&limit=1000")  # warms up
        since_s = clock.monotonic()
        size = client.download(f"/jobs/{job}/results?format={format}")
        per_s[format] = len(texts) / (clock.monotonic() - since_s)
        if size < len(texts) * DIMENSIONS * 4:
            raise BenchError(f"{size:,} bytes of {format} hold fewer than {len(texts):,} vectors")
    say("results read a second: " + ", ".join(f"{per_s[name]:.0f} as {name}" for name in per_s))
    return per_s


def _window(
    platform: Platform, database: Engine, seconds: float
) -> tuple[float, float, dict[str, float]]:
    """Measures a stretch of a job: items a second, WAL an item, CPU an item by part."""
    meter: Meter = whole_meter(platform)
    done, wal = _counter(database, _DONE), _counter(database, _WAL)
    at = done(), wal(), meter.read(), clock.monotonic()
    clock.sleep(seconds)
    items, written = done() - at[0], wal() - at[1]
    took_s, used = clock.monotonic() - at[3], meter.read()
    if not items:
        raise BenchError("no item ended while it was measured")
    cpu_us = {part: (used[part] - at[2][part]) / items * 1e6 for part in used}
    say(f"{items / took_s:.0f} items/s, {written / items:.0f} bytes of WAL an item; {cpu_us} µs")
    return items / took_s, written / items, cpu_us


def _counter(database: Engine, query: Any) -> Callable[[], int]:
    def read() -> int:
        """Returns the number."""
        with database.connect() as tx:
            return int(tx.scalar(query))

    return read


def _picture(rounds: Sequence[_Round]) -> Any:
    figure, (speed, calls) = picture(2, 10)
    bars(speed, {"items": [each.items_per_s for each in rounds]}, "Items a second of a job")
    sides = {
        "alone": latencies(each.alone for each in rounds),
        "beside the job": latencies(each.beside for each in rounds),
    }
    distributions(calls, sides, "Calls")
    return figure
