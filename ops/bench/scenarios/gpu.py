"""`millrace bench gpu`: is a job as fast as a bare loop on the same card, and what do calls feel?

Two models: MiniLM, and an encoder of BERT-large's size with random weights. Busy is the share of a
job's time in which the driver (NVML, by nvidia-smi) saw a kernel run; where there is no nvidia-smi,
in which launches were recorded as on the device. On the CPU everything is small: that shows that
the benchmark works, and its figures mean nothing.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ops.bench.baselines.bare_engine_loop import BareLoop
from ops.bench.harness.platform import (
    BenchError,
    data_file,
    own_platform,
    save_picture,
    say,
    with_spread,
)
from ops.bench.results.report import Report
from ops.bench.scenarios.one_model import OneModel

ASKED = {
    "job_vs_bare_minilm": ">= 0.95",
    "job_vs_bare_encoder": ">= 0.95",
    "device_busy_share": ">= 0.95",
}
NAMES = ("minilm", "encoder")

_ON_CUDA = """
[[model]]
name = "minilm"
version = "1"
engine = "minilm"
target_ms = 250
options = { device = "DEVICE", layout = "padded" }
limits = { max_batch = 1024, max_tokens = 32768, in_flight = 2, slice_items = 8192 }

[[model]]
name = "encoder"
version = "1"
engine = "encoder"
target_ms = 500
options = { device = "DEVICE", layout = "padded" }
limits = { max_batch = 256, max_tokens = 8192, in_flight = 2, slice_items = 1024 }
"""

_ON_CPU = """
[[model]]
name = "minilm"
version = "1"
engine = "minilm"
target_ms = 60_000
options = { device = "DEVICE", threads = 1 }
limits = { max_batch = 64, max_tokens = 512, slice_items = 128 }

[[model]]
name = "encoder"
version = "1"
engine = "encoder"
target_ms = 60_000
limits = { max_batch = 64, max_tokens = 2048, slice_items = 512 }
[model.options]
device = "DEVICE"
threads = 1
layout = "padded"
hidden = 128
layers = 2
heads = 4
intermediate = 512
"""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured: jobs of about so many seconds, so many times; calls for so long."""

    texts: int
    job_s: float
    runs: int
    calls_s: float
    calls_per_s: float


FULL = Extent(texts=4000, job_s=20, runs=3, calls_s=10, calls_per_s=50)
QUICK = Extent(texts=24, job_s=0.5, runs=1, calls_s=0.5, calls_per_s=20)


def run(device: str, quick: bool) -> None:
    """device: of torch; quick: one short run of each, as always on the CPU."""
    on_cuda = device.startswith("cuda")
    if on_cuda:
        _check_cuda()
    extent = FULL if on_cuda and not quick else QUICK
    report = Report("gpu", ASKED)
    with own_platform(models=models_on(device)) as platform:
        for name in NAMES:
            _measure(report, OneModel(platform, name, on_cuda), extent)
    report.add(device_busy_share=min(report.figures[f"{name}_busy_share"] for name in NAMES))
    if extent is FULL:
        save_picture("gpu", _picture(report))
    report.finish()


def _check_cuda() -> None:
    import torch

    if not torch.cuda.is_available():
        raise BenchError(
            f"torch {torch.__version__} finds no CUDA device here; --device cpu runs a small trial"
        )


def models_on(device: str) -> str:
    """The models file of this benchmark."""
    return (_ON_CUDA if device.startswith("cuda") else _ON_CPU).replace("DEVICE", device)


def _measure(report: Report, model: OneModel, extent: Extent) -> None:
    texts = _texts(extent.texts)
    with BareLoop(model.file, model.name, texts) as bare:
        bare.seconds(1)  # warms up
        rounds = max(1, round(extent.job_s / bare.seconds(1)))
        say(f"{model.name}: jobs of {rounds * len(texts):,} texts on {bare.device}")
        _compare(report, model, bare, texts * rounds, rounds, extent.runs)
    seconds, per_s = extent.calls_s, extent.calls_per_s
    model.calls(texts, seconds, per_s)  # warms up
    alone_ms = model.calls(texts, seconds, per_s)
    longer = max(1.0, 2 * seconds / extent.job_s)  # than the calls take
    job = model.start_job(texts * round(rounds * longer))
    beside_ms = model.calls(texts, seconds, per_s)
    if model.ended(job):
        say(f"{model.name}: the job ended before the calls beside it did")
    model.read(job)
    p95_ms, p95_beside_ms = (float(np.percentile(ms, 95)) for ms in (alone_ms, beside_ms))
    report.add(
        **{
            f"{model.name}_call_p95_ms": p95_ms,
            f"{model.name}_call_p95_beside_job_ms": p95_beside_ms,
        }
    )


def _compare(
    report: Report, model: OneModel, bare: BareLoop, texts: Sequence[str], rounds: int, runs: int
) -> None:
    """The bare loop and a job, in turn. A job's rate counts from its first claim to its end:
    uploading comes before the device has anything to do; `whole` counts it."""
    name, bare_rates, jobs = model.name, [], []
    for _ in range(runs):
        bare_rates.append(len(texts) / bare.seconds(rounds))
        jobs.append(model.run_job(texts))
        say(f"{name}: bare {bare_rates[-1]:.0f}, job {jobs[-1].items_per_s:.0f} items/s")
    job_rates = [job.items_per_s for job in jobs]
    report.add(
        **with_spread(f"{name}_bare_items_per_s", bare_rates),
        **with_spread(f"{name}_job_items_per_s", job_rates),
        **{
            f"job_vs_bare_{name}": median(job_rates) / median(bare_rates),
            f"{name}_whole_items_per_s": median(job.items / job.whole_s for job in jobs),
            f"{name}_busy_share": median(job.busy_share for job in jobs),
        },
    )


def _texts(most: int) -> list[str]:
    """Questions and answers of gsm8k, and film reviews: short and long, in a fixed mixed order."""
    rows = [*_rows("gsm8k_test.jsonl"), *_rows("movie_reviews_200.jsonl")]
    texts = [row[key] for row in rows for key in ("question", "answer", "text") if key in row]
    stride = 787  # a prime: neighbours come from all over
    return [texts[n * stride % len(texts)] for n in range(min(most, len(texts)))]


def _rows(name: str) -> Iterator[dict[str, Any]]:
    with data_file(name).open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def _picture(report: Report) -> Figure:
    figure = Figure(figsize=(8, 2.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes, title, kinds in (
        (left, "Items a second", ("bare_items_per_s", "job_items_per_s")),
        (right, "p95 of calls, ms: alone, beside a job", ("call_p95_ms", "call_p95_beside_job_ms")),
    ):
        labels = [f"{name}: {kind.split('_items')[0]}" for name in NAMES for kind in kinds]
        values = [report.figures[f"{name}_{kind}"] for name in NAMES for kind in kinds]
        axes.barh(labels, values, color=["#9ecae1", "#08519c"] * len(NAMES))
        axes.invert_yaxis()
        axes.set_title(title)
    return figure
