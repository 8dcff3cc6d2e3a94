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
from pathlib import Path
from statistics import median
from typing import Any

from jobs import clock
from jobs.models.model import Model
from jobs.models.models_file import load
from ops.bench.baselines.encoders import encoder
from ops.bench.data import texts as data
from ops.bench.harness.errors import BenchError
from ops.bench.harness.models_files import models_file
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load import workloads
from ops.bench.load.client import Client
from ops.bench.load.open_loop import drive
from ops.bench.load.submissions import launch_figures
from ops.bench.probes import gpu_utilization
from ops.bench.results.plots import DARK, LIGHT, picture
from ops.bench.results.report import Report, scenario
from ops.supervisor.platform import Platform

NAMES = ("minilm", "encoder")
_POLL_S = 0.05


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
    models = models_on(device)
    with own_platform(models=models_file(*models)) as platform:
        for model in models:
            with closing(Client(platform.url)) as client:
                _measure(report, _Target(platform, client, model, on_cuda), extent)
    report.add(device_busy_share=min(report.figures[f"{name}_busy_share"] for name in NAMES))
    return _picture(report) if extent is FULL else None


def _check_cuda() -> None:
    import torch

    if not torch.cuda.is_available():
        raise BenchError(
            f"torch {torch.__version__} finds no CUDA device here; --device cpu runs a small trial"
        )


def models_on(device: str) -> list[Model]:
    """Models of this benchmark."""
    kind = "cuda" if device.startswith("cuda") else "cpu"
    declared = load(Path(__file__).with_name(f"gpu_models_{kind}.toml"))
    models = [declared.resolve(name) for name in NAMES]
    return [replace(model, options={**model.options, "device": device}) for model in models]


@dataclass(frozen=True, slots=True)
class _Target:
    """One model of a platform."""

    platform: Platform
    client: Client
    model: Model
    on_cuda: bool

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.model.name


@dataclass(frozen=True, slots=True)
class _Job:
    """Times of a job that ended."""

    run_s: float  #: from its first claim to its end
    whole_s: float  #: from its first byte to its last result read
    busy_share: float  #: share of run_s in which the device was busy


def _measure(report: Report, target: _Target, extent: Extent) -> None:
    name, texts = target.name, _texts(extent.texts)
    with encoder(texts, "bare", str(target.platform.settings.models), name) as (device, bare):
        bare(1)  # warms up
        rounds = max(1, round(extent.job_s / bare(1)))
        items = texts * rounds
        say(f"{name}: jobs of {len(items):,} texts on {device}")
        bare_rates, jobs = [], []
        for _ in range(extent.runs):
            bare_rates.append(len(items) / bare(rounds))
            jobs.append(_run_job(target, items))
            say(f"{name}: bare {bare_rates[-1]:.0f}, job {len(items) / jobs[-1].run_s:.0f} items/s")
    job_rates = [len(items) / job.run_s for job in jobs]
    report.spread(f"{name}_", bare_items_per_s=bare_rates, job_items_per_s=job_rates)
    report.median(
        f"{name}_",
        whole_items_per_s=(len(items) / job.whole_s for job in jobs),
        busy_share=(job.busy_share for job in jobs),
    )
    report.add("job_vs_bare_", **{name: median(job_rates) / median(bare_rates)})
    _calls_beside_a_job(report, target, texts, rounds, extent)


def _calls_beside_a_job(
    report: Report, target: _Target, texts: Sequence[str], rounds: int, extent: Extent
) -> None:
    calls, client, name = partial(_calls, target, texts, extent), target.client, target.name
    calls()  # warms up
    alone_ms = calls()
    longer = max(1.0, 2 * extent.calls_s / extent.job_s)  # than the calls take
    job = client.post(name, [*texts] * round(rounds * longer))
    while not client.job(job)["started_at"]:
        clock.sleep(_POLL_S)
    during_ms = calls()
    if client.job(job)["finished_at"]:
        say(f"{name}: the job ended before the calls during it did")
    _read(client, job)
    report.add(f"{name}_", call_p95_ms=alone_ms, call_p95_beside_job_ms=during_ms)


def _calls(target: _Target, texts: Sequence[str], extent: Extent) -> float:
    """p95 of calls in an open loop, ms."""
    due_s = [n / extent.calls_per_s for n in range(round(extent.calls_s * extent.calls_per_s))]
    load = workloads.infer(target.platform, target.name, texts, due_s)
    return drive(replace(load, grace_s=120.0)).all_right().percentiles(95)[0]


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
    if share is None:
        engine_s = float(launch_figures(target.platform, id).engine_ms) / 1000
        share = engine_s / target.model.limits.in_flight / run_s
    return _Job(run_s, whole_s, share)


def _read(client: Client, job: str) -> None:
    """Reads the results until there are no more to come."""
    count = sum(1 for line in client.results(job) if b'"succeeded"' in line)
    total = client.job(job)["counts"]["total"]
    if count != total:
        raise BenchError(f"{count} of {total} items succeeded")


def _texts(most: int) -> list[str]:
    """Short and long texts in a fixed mixed order."""
    texts = data.mixed()
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
