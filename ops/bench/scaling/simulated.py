"""The autoscaler on a virtual clock: over a clairvoyant's time of replicas, and the share refused.

`days`: three, of the shape of an hour of conversations, repeated, over a day's curve between 0.3
and 1.7 of the mean; a mean of ten replicas. `conv`: that hour itself, `bursts`: five busy minutes;
five replicas. Figures are the same on any machine.
"""

from jobs.scaling.policy import Policy
from ops.bench.data import traces
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report
from ops.simulation.scaling import loads
from ops.simulation.scaling.compare import compare, lines
from ops.simulation.scaling.controllers import Autoscaler
from ops.simulation.scaling.fluid import Load, Run, simulate

ASKED = (
    "days_30_over_oracle <= 1.5", "days_30_refused <= 0.01",
    "days_120_over_oracle <= 1.9", "days_120_refused <= 0.025",
    "conv_30_over_oracle <= 1.3", "conv_30_refused <= 0.002", "conv_30_over_static <= 1.05",
    "step_overshoot <= 1.2", "blind_downs <= 0", "stuck_most <= 12", "stuck_told >= 1",
)  # fmt: skip
_STEP_S, _DEAD_S = 300.0, 300.0
_BEFORE, _AFTER = 0.8, 8.0  # replicas
_NEVER_S = 1e9


def measure(report: Report, scale: Scale) -> None:
    """Simulates all."""
    conv = loads.from_arrivals(traces.hour(), 5.0)
    bursts = loads.from_arrivals(traces.busiest(), 5.0)
    _compare(report, "conv", conv)
    _compare(report, "bursts", bursts)
    _compare(report, "days", loads.days(conv, 1 if scale.quick else 3, 10.0))
    _step(report)
    _faults(report)


def _compare(report: Report, name: str, load: Load) -> None:
    for boot_s in (30.0, 120.0):
        found = compare(load, Policy(max_replicas=100, boot_s=boot_s), boot_s)
        say(f"{name}, a boot of {boot_s:g} s")
        for line in lines(found):
            say(line)
        own, hpa, queue, static = found.runs
        report.add(
            f"{name}_{boot_s:g}_",
            over_oracle=found.over_oracle(own), refused=own.refused,
            over_static=own.replica_s / static.replica_s,
            hpa_over_oracle=found.over_oracle(hpa), hpa_refused=hpa.refused,
            queue_over_oracle=found.over_oracle(queue), queue_refused=queue.refused,
        )  # fmt: skip


def _step(report: Report) -> None:
    """Ten times the load at once: the most replicas over those that it settles at."""
    _, run = _on_step(30.0)
    report.add("step_", overshoot=run.most / run.replicas[-1], refused=run.refused)


def _faults(report: Report) -> None:
    """Metrics that are dead for five minutes while the load falls, and replicas that never boot."""
    down = Load([8.0 if n < 300 else 0.5 for n in range(1200)], 1.0)
    own = Autoscaler(Policy(max_replicas=100, min_stay_s=0), 11)
    simulate(own, down, 30.0, 11, faults=[range(300, 600)])
    dead = [act for at_s, act, _, _ in own.reasons if 300 <= at_s < 300 + _DEAD_S]
    report.add("blind_", downs=dead.count("down"))
    own, run = _on_step(_NEVER_S)
    told = [act for _, act, _, _ in own.reasons].count("overdue")
    report.add("stuck_", most=run.most, told=told)


def _on_step(boot_s: float) -> tuple[Autoscaler, Run]:
    own = Autoscaler(Policy(max_replicas=100, boot_s=min(boot_s, 60.0)), 2)
    load = loads.step(_BEFORE, _AFTER, _STEP_S, 4 * _STEP_S)
    return own, simulate(own, load, boot_s, 2)
