"""`millrace bench instrumentation`: what it costs to be seen. The same work with all of it on, and
off, in turns so short that what else the machine does hits all alike."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from jobs import clock
from ops.bench.harness.errors import BenchError
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import FULL, Scale
from ops.bench.load.child_process import ChildProcess
from ops.bench.load.ndjson_client import Stream
from ops.bench.probes import cpu
from ops.bench.results.report import Report
from ops.bench.results.statistics import Column, interval
from ops.bench.scenarios import echo
from ops.supervisor.platform import Platform

ASKED = {
    "echo_cost_share": "<= 0.05",
    "call_cpu_cost_ms": "<= 0.05",
    "call_p50_cost_ms": "<= 0.05",
}
_ITEMS, _JOBS = 40_000, 12
_PARTS, _BLOCKS, _CALLS, _EVERY_S = 10, 4, 50, 0.005
"""Of each part each arm has so many blocks of so many calls, which come so often."""
_WARM_UP_CALLS, _IDLE_S = 100, 6.0


class Arm:
    """A platform that is instrumented in one way. idle_cores: what it takes with nothing to do."""

    def __init__(self, name: str, platform: Platform) -> None:
        self.name = name
        self._stream = Stream(platform.url, poll_s=0.02)
        self._meter = cpu.of_platform(platform)
        self.idle_cores = 0.0

    def job(self, count: int) -> float:
        """Seconds until its last result is read."""
        return echo.run_job(self._stream, count)

    def call(self, n: int) -> float:
        """Milliseconds until it is answered."""
        since_s = clock.monotonic()
        if self._stream.call("echo", f"call {n}") != f"call {n}":
            raise BenchError(f"a call of {self.name} had a wrong answer")
        return (clock.monotonic() - since_s) * 1000

    def cpu_s(self) -> float:
        """Of its processes so far, without this one, which drives it."""
        used = self._meter.read()
        return sum(seconds for name, seconds in used.items() if name != "supervisor")


def run(effort: Scale = FULL) -> None:
    """Three platforms, of which one works while the others wait."""
    report = Report("instrumentation", ASKED, effort.quick)
    with ExitStack() as stack:
        sink = stack.enter_context(ChildProcess("ops.bench.load.servers.otlp_sink"))
        arms = list(_arms(stack, f"http://127.0.0.1:{sink.ask('port')['port']}"))
        for arm in arms:
            arm.job(_ITEMS)
            for n in range(_WARM_UP_CALLS):
                arm.call(n)
        _rest(report, arms, effort.seconds(_IDLE_S))
        items = _items(arms, effort)
        calls = _calls(arms, effort)
        report.add(otlp_requests=sink.ask("how many")["taken"])
    for n, arm in enumerate(arms):
        levels = {name: float(np.median(table[:, n])) for name, table in (items | calls).items()}
        report.add(**{f"{arm.name}_{name}": value for name, value in levels.items()})
    for n, arm in enumerate(arms[1:], start=1):
        prefix = "" if arm.name == "on" else f"{arm.name}_"
        for name, table, cost in (
            ("echo_cost_share", items["echo_items_per_s"], _less),
            ("item_cpu_cost_share", items["item_cpu_us"], _more),
            ("call_cpu_cost_ms", calls["call_cpu_ms"], _difference),
            ("call_p50_cost_ms", calls["call_p50_ms"], _difference),
            ("call_mean_cost_ms", calls["call_mean_ms"], _difference),
        ):
            low, high = interval(cost, table[:, 0], table[:, n])
            report.add(**{prefix + name: cost(table[:, 0], table[:, n])})
            report.add(**{f"{prefix}{name}_low": low, f"{prefix}{name}_high": high})
    report.finish()


def _arms(stack: ExitStack, receiver: str) -> Iterator[Arm]:
    on = {"metrics": True, "otlp_endpoint": receiver, "log_format": "json"}
    ways: Mapping[str, Mapping[str, Any]] = {
        "off": {"metrics": False, "log_format": "human"},
        "on": on,
        "traced": {**on, "trace_share": 1.0},
    }
    for name, changes in ways.items():
        yield Arm(name, stack.enter_context(own_platform(**changes)))


# -- what is measured


def _rest(report: Report, arms: Sequence[Arm], seconds: float) -> None:
    before_s = [arm.cpu_s() for arm in arms]
    clock.sleep(seconds)
    for arm, before in zip(arms, before_s, strict=True):
        arm.idle_cores = (arm.cpu_s() - before) / seconds
        report.add(**{f"{arm.name}_idle_cores": arm.idle_cores})


def _items(arms: Sequence[Arm], effort: Scale) -> dict[str, Column]:
    jobs = max(2, round(_JOBS * effort.share))
    took_s, used_s = np.zeros((jobs, len(arms))), np.zeros((jobs, len(arms)))
    for turn in range(jobs):
        order = list(enumerate(arms))
        for place, arm in order if turn % 2 == 0 else order[::-1]:  # none is always first
            before_s = arm.cpu_s()
            took_s[turn, place] = arm.job(_ITEMS)
            used_s[turn, place] = arm.cpu_s() - before_s
            say(f"{arm.name}: {_ITEMS / took_s[turn, place]:.0f} items/s")
    return {"echo_items_per_s": _ITEMS / took_s, "item_cpu_us": used_s * 1e6 / _ITEMS}


def _calls(arms: Sequence[Arm], effort: Scale) -> dict[str, Column]:
    """One call at a time, at a fixed rate. CPU: without what an arm takes when it is idle."""
    parts, count = max(2, round(_PARTS * effort.share)), _BLOCKS * _CALLS
    p50_ms, mean_ms, used_ms = (np.zeros((parts, len(arms))) for _ in range(3))
    for part in range(parts):
        took_ms: list[list[float]] = [[] for _ in arms]
        before_s, since_s = [arm.cpu_s() for arm in arms], clock.monotonic()
        for block in range(_BLOCKS * len(arms)):
            place = (block + part) % len(arms)
            took_ms[place] += _block(arms[place])
        seconds = clock.monotonic() - since_s
        for place, arm in enumerate(arms):
            used_s = arm.cpu_s() - before_s[place] - arm.idle_cores * seconds
            used_ms[part, place] = used_s * 1000 / count
        p50_ms[part], mean_ms[part] = np.median(took_ms, axis=1), np.mean(took_ms, axis=1)
        say("; ".join(f"{arm.name}: p50 {p50_ms[part, n]:.2f} ms" for n, arm in enumerate(arms)))
    return {"call_cpu_ms": used_ms, "call_p50_ms": p50_ms, "call_mean_ms": mean_ms}


def _block(arm: Arm) -> list[float]:
    since_s, took_ms = clock.monotonic(), []
    for n in range(_CALLS):
        clock.sleep(max(0.0, since_s + n * _EVERY_S - clock.monotonic()))
        took_ms.append(arm.call(n))
    return took_ms


# -- what it costs


def _less(off: Column, on: Column) -> float:
    return 1 - float(np.median(on / off))


def _more(off: Column, on: Column) -> float:
    return float(on.sum() / off.sum()) - 1


def _difference(off: Column, on: Column) -> float:
    return float(np.median(on - off))
