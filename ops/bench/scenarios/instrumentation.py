"""`millrace bench instrumentation`: cost of metrics, traces and logs.

The same work runs with all of them on and off, in turns so short that other load on the machine
hits all alike.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from jobs import clock
from ops.bench.harness.child_process import child
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load.client import Client
from ops.bench.probes.cpu import platform_meter
from ops.bench.results.report import Report, scenario
from ops.bench.results.statistics import Column, interval
from ops.bench.scenarios import echo
from ops.supervisor.platform import Platform

_ITEMS, _JOBS = 40_000, 12
# Each arm makes, in each part, so many blocks of so many calls at this interval.
_PARTS, _BLOCKS, _CALLS, _INTERVAL_S = 10, 4, 50, 0.005
_WARM_UP_CALLS, _IDLE_S = 100, 6.0


class Arm:
    """Platform that is instrumented in one way."""

    def __init__(self, name: str, platform: Platform) -> None:
        self.name = name
        self._client = Client(platform.url, poll_s=0.02)
        self._meter = platform_meter(platform)
        self.idle_cores = 0.0  #: CPU without any work
        self.job()
        for n in range(_WARM_UP_CALLS):
            self._client.timed_call(n)

    def job(self) -> float:
        """Runs a job; returns its seconds."""
        return echo.run_job(self._client, _ITEMS)

    def block(self) -> list[float]:
        """Makes a block of calls at a fixed rate; ms each."""
        since_s, took_ms = clock.monotonic(), []
        for n in range(_CALLS):
            clock.sleep(max(0.0, since_s + n * _INTERVAL_S - clock.monotonic()))
            took_ms.append(self._client.timed_call(n))
        return took_ms

    def cpu_s(self) -> float:
        """CPU of its processes so far, without this one, which drives it."""
        used = self._meter.read()
        return sum(seconds for name, seconds in used.items() if name != "supervisor")


@scenario(
    "instrumentation",
    "echo_cost_share <= 0.05",
    "call_cpu_cost_ms <= 0.05",
    "call_p50_cost_ms <= 0.05",
)
def run(report: Report, scale: Scale) -> None:
    """Runs three platforms, of which one works while the others wait."""
    with ExitStack() as stack:
        sink = stack.enter_context(child("ops.bench.load.servers.otlp_sink"))
        on = {"metrics": True, "log_format": "json"}
        on["otlp_endpoint"] = f"http://127.0.0.1:{sink.ask()['port']}"
        settings: dict[str, dict[str, Any]] = {
            "off": {"metrics": False, "log_format": "human"},
            "on": on,
            "traced": {**on, "trace_share": 1.0},
        }
        arms = [
            Arm(name, stack.enter_context(own_platform(**changes)))
            for name, changes in settings.items()
        ]
        _rest(report, arms, scale.seconds(_IDLE_S))
        tables = _items(arms, scale) | _calls(arms, scale)
        report.add(otlp_requests=sink.ask()["taken"])
    for n, arm in enumerate(arms):
        levels = {name: float(np.median(table[:, n])) for name, table in tables.items()}
        report.add(f"{arm.name}_", **levels)
    for n, arm in enumerate(arms[1:], start=1):
        prefix = "" if arm.name == "on" else f"{arm.name}_"
        for name, (table, cost) in _COSTS.items():
            off, found = tables[table][:, 0], tables[table][:, n]
            low, high = interval(cost, off, found)
            report.add(prefix, **{name: cost(off, found), f"{name}_low": low, f"{name}_high": high})


def _rest(report: Report, arms: Sequence[Arm], seconds: float) -> None:
    before_s = [arm.cpu_s() for arm in arms]
    clock.sleep(seconds)
    for arm, before in zip(arms, before_s, strict=True):
        arm.idle_cores = (arm.cpu_s() - before) / seconds
        report.add(f"{arm.name}_", idle_cores=arm.idle_cores)


def _items(arms: Sequence[Arm], scale: Scale) -> dict[str, Column]:
    jobs = max(2, round(_JOBS * scale.share))
    took_s, used_s = np.zeros((jobs, len(arms))), np.zeros((jobs, len(arms)))
    for turn in range(jobs):
        order = list(enumerate(arms))
        for place, arm in order if turn % 2 == 0 else order[::-1]:  # none is always first
            before_s = arm.cpu_s()
            took_s[turn, place] = arm.job()
            used_s[turn, place] = arm.cpu_s() - before_s
            say(f"{arm.name}: {_ITEMS / took_s[turn, place]:.0f} items/s")
    return {"echo_items_per_s": _ITEMS / took_s, "item_cpu_us": used_s * 1e6 / _ITEMS}


def _calls(arms: Sequence[Arm], scale: Scale) -> dict[str, Column]:
    """Makes one call at a time. CPU: without that of an idle arm."""
    parts, count = max(2, round(_PARTS * scale.share)), _BLOCKS * _CALLS
    p50_ms, mean_ms, used_ms = (np.zeros((parts, len(arms))) for _ in range(3))
    for part in range(parts):
        took_ms: list[list[float]] = [[] for _ in arms]
        before_s, since_s = [arm.cpu_s() for arm in arms], clock.monotonic()
        for block in range(_BLOCKS * len(arms)):
            place = (block + part) % len(arms)
            took_ms[place] += arms[place].block()
        seconds = clock.monotonic() - since_s
        for place, arm in enumerate(arms):
            used_s = arm.cpu_s() - before_s[place] - arm.idle_cores * seconds
            used_ms[part, place] = used_s * 1000 / count
        p50_ms[part], mean_ms[part] = np.median(took_ms, axis=1), np.mean(took_ms, axis=1)
        say("; ".join(f"{arm.name}: p50 {p50_ms[part, n]:.2f} ms" for n, arm in enumerate(arms)))
    return {"call_cpu_ms": used_ms, "call_p50_ms": p50_ms, "call_mean_ms": mean_ms}


#: By figure: (table, formula of it without and with instrumentation).
_COSTS: dict[str, tuple[str, Callable[[Column, Column], float]]] = {
    "echo_cost_share": ("echo_items_per_s", lambda off, on: 1 - float(np.median(on / off))),
    "item_cpu_cost_share": ("item_cpu_us", lambda off, on: float(on.sum() / off.sum()) - 1),
    "call_cpu_cost_ms": ("call_cpu_ms", lambda off, on: float(np.median(on - off))),
    "call_p50_cost_ms": ("call_p50_ms", lambda off, on: float(np.median(on - off))),
    "call_mean_cost_ms": ("call_mean_ms", lambda off, on: float(np.median(on - off))),
}
