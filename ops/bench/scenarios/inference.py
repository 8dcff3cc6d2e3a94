"""`millrace bench inference`: POST /api/inference at a rate, on simulated devices."""

import json
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from jobs import clock
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import Calls, Load, drive
from ops.bench.load.workloads import TEXTS
from ops.bench.probes.cpu import platform_meter
from ops.bench.results.report import Report, scenario
from ops.supervisor.platform import Platform

_MODEL = "batchstring"
_TARGET_MS = 200
_WARM_UP_S, _SECONDS = 3.0, 20.0
_COUNTERS = {
    "millrace_launch_rows_count": "launches",
    "millrace_launch_rows_sum": "rows",
    "millrace_model_device_seconds_total": "busy_s",
}


@dataclass(frozen=True, slots=True)
class Work:
    """Work of a device in some time."""

    launches: float = 0.0
    rows: float = 0.0
    busy_s: float = 0.0

    def since(self, before: "Work") -> "Work":
        """Returns the work since then."""
        return Work(
            self.launches - before.launches, self.rows - before.rows, self.busy_s - before.busy_s
        )

    def line(self, lasted_s: float) -> str:
        """Describes it in a line."""
        mean = self.rows / max(1.0, self.launches)
        used = self.busy_s / lasted_s
        return f"{self.launches:,.0f} launches of {mean:.1f} requests in the mean, {used:.0%} used"


@scenario("inference", "p95_ms <= 200", "errors <= 0")
def run(report: Report, scale: Scale, rate: int = 1000, devices: int = 6) -> None:
    """Drives requests that come at random times. A device takes 100 ms for up to 100 of them."""
    models = models_file(sample(_MODEL, target_ms=_TARGET_MS))
    with own_platform(devices, models, inference_model=_MODEL) as platform:
        _drive(platform, rate, _WARM_UP_S, seed=0)
        before, since_s = _work(platform), clock.monotonic()
        calls = _drive(platform, rate, scale.seconds(_SECONDS), seed=1)
        lasted_s = clock.monotonic() - since_s
        done = {url: each.since(before.get(url, Work())) for url, each in _work(platform).items()}
    say(f"{rate}/s on {devices} devices: {calls}")
    for number, each in enumerate(done.values(), start=1):
        say(f"device {number}: {each.line(lasted_s)}")
    launches = sum(each.launches for each in done.values())
    report.latencies([calls])
    report.add(
        rate_per_s=len(calls) / float(calls.due_s[-1]),
        errors=calls.errors,
        refused=int(calls.refused.sum()),
        launches=launches,
        mean_launch=sum(each.rows for each in done.values()) / launches,
        device_used=sum(each.busy_s for each in done.values()) / (devices * lasted_s),
        cpu_ms_per_call=calls.cpu_ms,
    )


def _drive(platform: Platform, rate: int, seconds: float, seed: int) -> Calls:
    bodies = [json.dumps({"input": text}) for text in TEXTS]
    outputs = [text.upper() for text in TEXTS]
    load = Load(f"{platform.url}/api/inference", poisson(rate, seconds, seed), bodies, outputs)
    return drive(load, platform_meter(platform))


def _work(platform: Platform) -> dict[str, Work]:
    """Returns what each device has done so far, by the address of its worker's metrics."""
    found = dict[str, Work]()
    for url in platform.metrics:
        figures = dict[str, float]()
        for family in text_string_to_metric_families(httpx.get(url).raise_for_status().text):
            for one in family.samples:
                if one.name in _COUNTERS and one.labels.get("model") == f"{_MODEL}@1":
                    figures[_COUNTERS[one.name]] = one.value
        if figures.get("launches"):
            found[url] = Work(**figures)
    return found
