"""Calls of MiniLM at 50 a second, alone and beside a job that goes on, and what the job keeps."""

from collections.abc import Sequence
from dataclasses import replace

from jobs import clock
from ops.bench.gpu import texts
from ops.bench.gpu.target import Target, read_results, run_job, started
from ops.bench.harness.platform import say, wait_until
from ops.bench.harness.scale import Scale
from ops.bench.load import workloads
from ops.bench.load.open_loop import Calls, drive
from ops.bench.results.report import Report

ASKED = (
    "call_p50_ms <= 4",
    "call_p95_excess_ms <= 5",
    "items_beside_calls >= 0.9",
)
_PER_S, _QUICK_PER_S, _SECONDS = 50.0, 5.0, 10.0
_TEXTS, _QUICK_TEXTS = 2000, 24
_BEGIN_WITHIN_S = 60.0
_POLL_S = 0.05


def measure(report: Report, scale: Scale, device: str) -> None:
    """Adds percentiles of the calls. `call_p95_excess_ms` is the p95 beside the job less twice the
    p95 alone; `items_beside_calls` the job's rate over that of one without calls."""
    some = texts.of_any_length(_QUICK_TEXTS if scale.quick else _TEXTS)
    per_s = _QUICK_PER_S if scale.quick else _PER_S
    due_s = [n / per_s for n in range(round(scale.seconds(_SECONDS) * per_s))]
    with started(device, "minilm") as target:
        _calls(target, some, due_s)  # warms up
        p50_ms, p95_ms = _calls(target, some, due_s).percentiles(50, 95)
        report.add(call_p50_ms=p50_ms, call_p95_ms=p95_ms)
        first = run_job(target, some)  # warms up
        enough = [*some] * max(1, round(due_s[-1] / first.run_s))
        rate = len(enough) / run_job(target, enough).run_s
        longer = [*some] * max(1, round(2.5 * due_s[-1] * rate / len(some)))
        beside, items_per_s = _beside_a_job(target, some, longer, due_s)
    beside_ms = beside.percentiles(95)[0]
    report.add(
        call_p95_beside_job_ms=beside_ms,
        call_p95_excess_ms=beside_ms - 2 * p95_ms,
        items_beside_calls=items_per_s / rate,
    )


def _beside_a_job(
    target: Target, some: Sequence[str], items: Sequence[str], due_s: Sequence[float]
) -> tuple[Calls, float]:
    """Returns the calls, and the job's items a second meanwhile."""
    job = target.client.post(target.name, items)
    wait_until(lambda: _done(target, job) > 0, "the job has begun", _BEGIN_WITHIN_S, _POLL_S)
    before, since_s = _done(target, job), clock.monotonic()
    calls = _calls(target, some, due_s)
    rate = (_done(target, job) - before) / (clock.monotonic() - since_s)
    if target.client.job(job)["finished_at"]:
        say("the job ended before the calls beside it did")
    read_results(target.client, job)
    return calls, rate


def _calls(target: Target, some: Sequence[str], due_s: Sequence[float]) -> Calls:
    """Drives calls in an open loop."""
    load = workloads.infer(target.platform, target.name, some, due_s)
    return drive(replace(load, grace_s=120.0)).all_right()


def _done(target: Target, job: str) -> int:
    count: int = target.client.job(job)["counts"]["succeeded"]
    return count
