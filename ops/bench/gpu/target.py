"""Target of the parts: a platform with one model on a device, its jobs, and what bounds them.

Busy is the share of a job's time in which the driver (NVML, by nvidia-smi) saw a kernel run; where
there is no nvidia-smi, in which launches were recorded as on the device.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median

from jobs import clock
from jobs.models.model import Model
from jobs.models.models_file import load
from ops.bench.baselines.encoders import encoder
from ops.bench.harness.errors import BenchError
from ops.bench.harness.models_files import models_file
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load.client import Client
from ops.bench.load.submissions import launch_figures
from ops.bench.probes import gpu_utilization
from ops.bench.results.report import Report
from ops.supervisor.platform import Platform

_JOB_S = 8.0  # rough length of a job on the device alone
_MOST_ITEMS = 400_000


@dataclass(frozen=True, slots=True)
class Target:
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
class Job:
    """Times of a job that ended."""

    run_s: float  #: from its first claim to its end
    whole_s: float  #: from its first byte to its last result read
    busy_share: float  #: share of run_s in which the device was busy


def check_device(device: str) -> None:
    """Raises BenchError where there is no such device."""
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise BenchError(
            f"torch {torch.__version__} finds no CUDA device here; --device cpu runs a small trial"
        )


def model_on(device: str, name: str) -> Model:
    """Model of this benchmark."""
    kind = "cuda" if device.startswith("cuda") else "cpu"
    declared = load(Path(__file__).with_name(f"models_{kind}.toml")).resolve(name)
    return replace(declared, options={**declared.options, "device": device})


@contextmanager
def started(device: str, name: str) -> Iterator[Target]:
    """Starts a platform that serves this model on this device."""
    model = model_on(device, name)
    on_cuda = device.startswith("cuda")
    with (
        own_platform(models=models_file(model)) as platform,
        closing(Client(platform.url)) as client,
    ):
        yield Target(platform, client, model, on_cuda)


def compare(
    report: Report, scale: Scale, target: Target, texts: Sequence[str], prefix: str
) -> float:
    """Measures jobs of these texts beside a bare loop of the engine, in turn. Adds their rates
    under the prefix; returns the median of the jobs', items/s from first claim to end."""
    with encoder(texts, "bare", str(target.platform.settings.models), target.name) as (name, bare):
        bare(1)  # warms up
        rounds = max(1, round(scale.seconds(_JOB_S) / bare(1)))
        rounds = min(rounds, max(1, _MOST_ITEMS // len(texts)))
        items = [*texts] * rounds
        say(f"jobs of {len(items):,} texts on {name}")
        bare_rates: list[float] = []
        jobs: list[Job] = []
        for _ in range(scale.rounds):
            bare_rates.append(len(items) / bare(rounds))
            jobs.append(run_job(target, items))
            say(f"bare {bare_rates[-1]:.0f}, job {len(items) / jobs[-1].run_s:.0f} items/s")
    job_rates = [len(items) / job.run_s for job in jobs]
    report.spread(prefix, bare_items_per_s=bare_rates, job_items_per_s=job_rates)
    report.median(
        prefix,
        whole_items_per_s=(len(items) / job.whole_s for job in jobs),
        busy_share=(job.busy_share for job in jobs),
    )
    report.add(prefix, job_vs_bare=median(job_rates) / median(bare_rates))
    return median(job_rates)


def run_job(target: Target, texts: Sequence[str]) -> Job:
    """Runs a job. Its rate counts from its first claim: uploading doesn't need the device."""
    watched = target.on_cuda and gpu_utilization.is_watchable()
    with gpu_utilization.watch_gpu() if watched else nullcontext() as samples:
        since_s = clock.monotonic()
        id = target.client.post(target.name, texts)
        read_results(target.client, id)
        whole_s = clock.monotonic() - since_s
    job = target.client.job(id)
    since, until = (datetime.fromisoformat(job[name]) for name in ("started_at", "finished_at"))
    run_s = (until - since).total_seconds()
    share = gpu_utilization.mean_share(samples, since, until) if samples else None
    if share is None:
        engine_s = float(launch_figures(target.platform, id).engine_ms) / 1000
        share = engine_s / target.model.limits.in_flight / run_s
    return Job(run_s, whole_s, share)


def read_results(client: Client, job: str) -> None:
    """Reads the results until there are no more to come. Raises BenchError where an item failed."""
    count = sum(1 for line in client.results(job) if b'"succeeded"' in line)
    total = client.job(job)["counts"]["total"]
    if count != total:
        raise BenchError(f"{count} of {total} items succeeded")
