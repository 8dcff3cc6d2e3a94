"""`millrace bench gpu`: jobs next to a bare loop on the same card, and calls next to a job.

Two models: MiniLM, and an encoder of BERT-large's size with random weights. Busy is the share of a
job's time in which the driver (NVML, by nvidia-smi) saw a kernel run; where there is no nvidia-smi,
in which launches were recorded as on the device. On the CPU everything is small: that shows that
the benchmark works, and its figures mean nothing.
"""

from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from statistics import median
from typing import Any

from jobs import clock, ids
from jobs.models import models_file
from jobs.store.jobs import detail
from ops.bench.baselines.bare_engine_loop import bare_loop
from ops.bench.harness.errors import BenchError
from ops.bench.harness.platform import database_of, own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load import workloads
from ops.bench.load.client import Client
from ops.bench.load.open_loop import drive
from ops.bench.probes import gpu_utilization
from ops.bench.results.plots import DARK, LIGHT, picture
from ops.bench.results.report import Report, scenario
from ops.supervisor.platform import Platform

NAMES = ("minilm", "encoder")
_POLL_S = 0.05
_MODEL = """
[[model]]
name = "{name}"
version = "1"
engine = "{name}"
target_ms = {target_ms}
options = {{ device = "{device}", {options} }}
limits = {{ {limits} }}
"""
#: By device and model: (target_ms, options, limits).
_MODELS = {
    "cuda": {
        "minilm": (
            250,
            'layout = "padded"',
            "max_batch = 1024, max_tokens = 32768, in_flight = 2, slice_items = 8192",
        ),
        "encoder": (
            500,
            'layout = "padded"',
            "max_batch = 256, max_tokens = 8192, in_flight = 2, slice_items = 1024",
        ),
    },
    "cpu": {
        "minilm": (60_000, "threads = 1", "max_batch = 64, max_tokens = 512, slice_items = 128"),
        "encoder": (
            60_000,
            'threads = 1, layout = "padded", hidden = 128, layers = 2, heads = 4, '
            "intermediate = 512",
            "max_batch = 64, max_tokens = 2048, slice_items = 512",
        ),
    },
}


@dataclass(frozen=True, slots=True)
class Extent:
    """Amount of measuring."""

    texts: int
    job_s: float  #: rough length of a job
    runs: int
    calls_s: float  #: seconds of calls
    calls_per_s: float


FULL = Extent(texts=4000, job_s=20, runs=3, calls_s=10, calls_per_s=50)
QUICK = Extent(texts=24, job_s=0.5, runs=1, calls_s=0.5, calls_per_s=20)


@scenario(
    "gpu",
    "job_vs_bare_minilm >= 0.95",
    "job_vs_bare_encoder >= 0.95",
    "device_busy_share >= 0.95",
)
def run(report: Report, scale: Scale, device: str, quick: bool) -> Any:
    """Measures both models. device: of torch; quick: one short run of each, as on the CPU."""
    on_cuda = device.startswith("cuda")
    if on_cuda:
        _check_cuda()
    extent = FULL if on_cuda and not quick else QUICK
    with own_platform(models=models_on(device)) as platform:
        for name in NAMES:
            with closing(Client(platform.url)) as client:
                _measure(report, _Target(platform, client, name, on_cuda), extent)
    report.add(device_busy_share=min(report.figures[f"{name}_busy_share"] for name in NAMES))
    return _picture(report) if extent is FULL else None


def _check_cuda() -> None:
    import torch

    if not torch.cuda.is_available():
        raise BenchError(
            f"torch {torch.__version__} finds no CUDA device here; --device cpu runs a small trial"
        )


def models_on(device: str) -> str:
    """Text of this benchmark's models file."""
    models = _MODELS["cuda" if device.startswith("cuda") else "cpu"]
    return "".join(
        _MODEL.format(name=name, device=device, target_ms=target, options=options, limits=limits)
        for name, (target, options, limits) in models.items()
    )


@dataclass(frozen=True, slots=True)
class _Target:
    """One model of a platform."""

    platform: Platform
    client: Client
    name: str
    on_cuda: bool


@dataclass(frozen=True, slots=True)
class _Job:
    """Times of a job that ended."""

    run_s: float  #: from its first claim to its end
    whole_s: float  #: from its first byte to its last result read
    busy_share: float  #: share of run_s in which the device was busy


def _measure(report: Report, target: _Target, extent: Extent) -> None:
    name, client = target.name, target.client
    texts = _texts(extent.texts)
    with bare_loop(target.platform.settings.models, name, texts) as (device, bare):
        bare(1)  # warms up
        rounds = max(1, round(extent.job_s / bare(1)))
        say(f"{name}: jobs of {rounds * len(texts):,} texts on {device}")
        bare_rates, jobs = [], []
        items = texts * rounds
        for _ in range(extent.runs):
            bare_rates.append(len(items) / bare(rounds))
            jobs.append(_run_job(target, items))
            say(f"{name}: bare {bare_rates[-1]:.0f}, job {len(items) / jobs[-1].run_s:.0f} items/s")
    job_rates = [len(items) / job.run_s for job in jobs]
    report.spread(**{f"{name}_bare_items_per_s": bare_rates, f"{name}_job_items_per_s": job_rates})
    report.median(
        **{
            f"{name}_whole_items_per_s": (len(items) / job.whole_s for job in jobs),
            f"{name}_busy_share": (job.busy_share for job in jobs),
        }
    )
    report.add(**{f"job_vs_bare_{name}": median(job_rates) / median(bare_rates)})
    calls = partial(_calls, target, texts, extent)
    calls()  # warms up
    alone_ms = calls()
    longer = max(1.0, 2 * extent.calls_s / extent.job_s)  # than the calls take
    job = client.post(name, texts * round(rounds * longer))
    while not client.job(job)["started_at"]:
        clock.sleep(_POLL_S)
    during_ms = calls()
    if client.job(job)["finished_at"]:
        say(f"{name}: the job ended before the calls during it did")
    _read(client, job)
    report.add(
        **{f"{name}_call_p95_ms": alone_ms, f"{name}_call_p95_beside_job_ms": during_ms},
    )


def _calls(target: _Target, texts: Sequence[str], extent: Extent) -> float:
    """p95 of calls in an open loop, ms."""
    due_s = [n / extent.calls_per_s for n in range(round(extent.calls_s * extent.calls_per_s))]
    load = workloads.infer(target.platform, target.name, texts, due_s)
    calls = drive(replace(load, grace_s=120.0))
    if calls.errors:
        raise BenchError(f"{calls.errors} calls failed: {calls.statuses()}")
    return calls.percentiles(95)[0]


def _run_job(target: _Target, texts: Sequence[str]) -> _Job:
    """Runs a job. Its rate counts from its first claim: uploading doesn't need the device."""
    watched = target.on_cuda and gpu_utilization.is_watchable()
    with gpu_utilization.watch_gpu() if watched else nullcontext() as samples:
        since_s = clock.monotonic()
        id = target.client.post(target.name, texts)
        _read(target.client, id)
        whole_s = clock.monotonic() - since_s
    job = target.client.job(id)
    since, until = (datetime.fromisoformat(job[name]) for name in ("started_at", "finished_at"))
    run_s = (until - since).total_seconds()
    share = gpu_utilization.mean_share(samples, since, until) if samples else None
    return _Job(run_s, whole_s, _launched_s(target, id) / run_s if share is None else share)


def _read(client: Client, job: str) -> None:
    """Reads the results until there are no more to come."""
    count = sum(1 for line in client.results(job) if b'"succeeded"' in line)
    total = client.job(job)["counts"]["total"]
    if count != total:
        raise BenchError(f"{count} of {total} items succeeded")


def _launched_s(target: _Target, job: str) -> float:
    """Time of a job's launches, over the number in flight."""
    models, id = target.platform.settings.models, ids.parse("job", job)
    assert models
    assert id
    with database_of(target.platform) as database, database.connect() as tx:
        engine_ms = detail.launch_figures(tx, id).engine_ms
    limits = models_file.load(models).resolve(target.name).limits
    return float(engine_ms / 1000 / limits.in_flight)


def _texts(most: int) -> list[str]:
    """Short and long texts in a fixed mixed order."""
    texts = workloads.mixed_texts()
    stride = 787  # a prime: neighbours come from all over
    return [texts[n * stride % len(texts)] for n in range(min(most, len(texts)))]


def _picture(report: Report) -> Any:
    figure, axes = picture(2, 8, 2.4)
    plots = {
        "Items a second": ("bare_items_per_s", "job_items_per_s"),
        "p95 of calls, ms: alone, beside a job": ("call_p95_ms", "call_p95_beside_job_ms"),
    }
    for each, (title, kinds) in zip(axes, plots.items(), strict=True):
        labels = [f"{name}: {kind.split('_items')[0]}" for name in NAMES for kind in kinds]
        values = [report.figures[f"{name}_{kind}"] for name in NAMES for kind in kinds]
        each.barh(labels, values, color=[LIGHT, DARK] * len(NAMES))
        each.invert_yaxis()
        each.set_title(title)
    return figure
