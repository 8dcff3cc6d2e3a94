"""`millrace bench instrumentation`: what it costs to be seen. The same work with all of it on, and
off, in turn."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev
from typing import Any

from jobs import clock
from ops.bench import cpu, echo, loads
from ops.bench.arrivals import poisson
from ops.bench.beside import Beside
from ops.bench.cpu import Meter
from ops.bench.effort import FULL, Effort
from ops.bench.errors import BenchError
from ops.bench.harness import own_platform, say
from ops.bench.openloop import drive
from ops.bench.report import Report
from ops.bench.stream import Stream
from ops.up import Platform

ASKED = {
    "echo_cost_share": "<= 0.05",
    "call_cpu_cost_ms": "<= 0.05",
    "call_p50_cost_ms": "<= 0.05",
}
_ITEMS = 20_000
_PER_S, _SECONDS, _WARM_UP_S, _IDLE_S = 150, 4.0, 1.0, 5.0
_MODEL = "echo"
_TEXTS = [f"a short text, number {n}" for n in range(200)]
_T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20)
"""Student's t for a 95 % confidence interval, by degrees of freedom from 1."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One round of one arm. items_per_s: of echo, until the last result is read; item_cpu_us,
    call_cpu_ms: of all our processes; the call's without what they take when idle; p50_ms, mean_ms:
    of a call, from the moment it was due."""

    items_per_s: float
    item_cpu_us: float
    call_cpu_ms: float
    p50_ms: float
    mean_ms: float


class Arm:
    """A platform that is instrumented in one way; idle_cores: what it takes with nothing to do."""

    def __init__(self, name: str, platform: Platform, effort: Effort) -> None:
        self.name, self._platform, self._effort = name, platform, effort
        self._meter: Meter = cpu.of_platform(platform)
        self.rounds: list[Seen] = []
        self.idle_cores = 0.0

    def warm_up(self) -> None:
        self._items()
        self._calls(0)

    def rest(self) -> None:
        seconds = self._effort.seconds(_IDLE_S)
        before_s = self._cpu_s()
        clock.sleep(seconds)
        self.idle_cores = (self._cpu_s() - before_s) / seconds

    def run(self, seed: int) -> None:
        seen = Seen(*self._items(), *self._calls(seed))
        say(
            f"{self.name}: {seen.items_per_s:.0f} items/s, {seen.item_cpu_us:.0f} µs of CPU each; "
            f"a call {seen.call_cpu_ms:.3f} ms of CPU, p50 {seen.p50_ms:.2f} ms"
        )
        self.rounds.append(seen)

    def _items(self) -> tuple[float, float]:
        before_s, stream = self._cpu_s(), Stream(self._platform.url)
        count = round(_ITEMS * self._effort.share)
        took_s = echo.run_job(stream, count)
        stream.close()
        return count / took_s, (self._cpu_s() - before_s) * 1e6 / count

    def _calls(self, seed: int) -> tuple[float, float, float]:
        due_s = poisson(_PER_S, _WARM_UP_S + self._effort.seconds(_SECONDS), seed)
        since_s = clock.monotonic()
        calls = drive(loads.infer(self._platform, _MODEL, _TEXTS, due_s), self._meter)
        if calls.errors:
            raise BenchError(f"{calls.errors} calls failed: {calls.said()}")
        used_s = _ours(calls.cpu) - self.idle_cores * (clock.monotonic() - since_s)
        measured = calls.since(_WARM_UP_S)
        latency_ms = measured.latency_ms[measured.right]
        p50_ms = measured.percentiles(50)[0]
        return used_s * 1000 / len(calls), p50_ms, float(latency_ms.mean())

    def _cpu_s(self) -> float:
        return _ours(self._meter.read())


def _ours(used: Mapping[str, float]) -> float:
    """Without this process, which drives them."""
    return sum(seconds for name, seconds in used.items() if name != "supervisor")


def run(effort: Effort = FULL) -> None:
    """Three platforms, idle but for the one whose turn it is; there and back (ABC CBA …), so that
    what changes slowly hits all alike."""
    report = Report("instrumentation", ASKED, effort.quick)
    with ExitStack() as stack:
        sink = stack.enter_context(Beside("ops.bench.otlp_sink"))
        receiver = f"http://127.0.0.1:{sink.ask('port')['port']}"
        on = {"metrics": True, "otlp_endpoint": receiver, "log_format": "json"}
        ways: Mapping[str, Mapping[str, Any]] = {
            "off": {"metrics": False, "log_format": "human"},
            "on": on,
            "traced": {**on, "trace_share": 1.0},
        }
        arms = [
            Arm(name, stack.enter_context(own_platform(**changes)), effort)
            for name, changes in ways.items()
        ]
        for arm in arms:
            arm.warm_up()
        for arm in arms:
            arm.rest()
        for n in range(2 * effort.rounds):
            for arm in arms if n % 2 == 0 else arms[::-1]:
                arm.run(seed=n)
        taken = sink.ask("how many")["taken"]
    off, *others = arms
    report.add(otlp_requests=taken, **{f"{arm.name}_idle_cores": arm.idle_cores for arm in arms})
    for arm in arms:
        report.add(
            **{f"{arm.name}_echo_items_per_s": mean(seen.items_per_s for seen in arm.rounds)},
            **{f"{arm.name}_item_cpu_us": mean(seen.item_cpu_us for seen in arm.rounds)},
            **{f"{arm.name}_call_cpu_ms": mean(seen.call_cpu_ms for seen in arm.rounds)},
            **{f"{arm.name}_call_p50_ms": mean(seen.p50_ms for seen in arm.rounds)},
            **{f"{arm.name}_call_mean_ms": mean(seen.mean_ms for seen in arm.rounds)},
        )
    for arm in others:
        for name, value in _costs(off, arm).items():
            report.add(**{name if arm.name == "on" else f"{arm.name}_{name}": value})
    report.finish()


def _costs(off: Arm, arm: Arm) -> dict[str, float]:
    """Each with half its 95 % confidence interval, over the rounds: a round is compared with that
    of the other arm beside it."""
    compared: Mapping[str, Callable[[Seen, Seen], float]] = {
        "echo_cost_share": lambda a, b: 1 - b.items_per_s / a.items_per_s,
        "item_cpu_cost_share": lambda a, b: b.item_cpu_us / a.item_cpu_us - 1,
        "call_cpu_cost_ms": lambda a, b: b.call_cpu_ms - a.call_cpu_ms,
        "call_p50_cost_ms": lambda a, b: b.p50_ms - a.p50_ms,
        "call_mean_cost_ms": lambda a, b: b.mean_ms - a.mean_ms,
    }
    found: dict[str, float] = {}
    for name, difference in compared.items():
        values = [difference(a, b) for a, b in zip(off.rounds, arm.rounds, strict=True)]
        found |= {name: mean(values), f"{name}_ci95": interval(values)}
    return found


def interval(values: Sequence[float]) -> float:
    """Half the width of the 95 % confidence interval of their mean, by Student's t."""
    t = _T95[min(len(values) - 1, len(_T95)) - 1]
    return t * stdev(values) / sqrt(len(values))
