"""Five busy minutes of conversations, simulated: a pool that only scales, beside one whose room is
filled by jobs that yield to calls.

Five replicas' work of calls on average. `scales`: an autoscaler that leaves a quarter of the pool
free; `tight`: one that leaves nothing free. `yields`: the latter, where as much work of jobs comes
steadily, and the same promise of them. `over_oracle`: time of replicas, less the work that jobs
got done, over a clairvoyant's. Figures are the same on any machine.
"""

from dataclasses import replace
from math import ceil

from jobs.scaling.policy import Policy
from ops.bench.data import traces
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report
from ops.simulation.scaling import loads
from ops.simulation.scaling.controllers import Autoscaler
from ops.simulation.scaling.fluid import Load, simulate
from ops.simulation.scaling.oracle import foresee

ASKED = tuple(f"yielding_{boot_s}_yields_refused <= 0.002" for boot_s in (30, 120))
_WORK = 5.0  # of calls, and of items, in replicas


def measure(report: Report, scale: Scale) -> None:
    """Simulates all three at two boot times."""
    calls = loads.from_arrivals(traces.busiest(), _WORK)
    for boot_s in (30.0, 120.0):
        eased = Policy(max_replicas=100, boot_s=boot_s)
        tight = replace(eased, target_used=1.0)
        beside = replace(calls, items=_WORK, backlog_s=_WORK * (boot_s + tight.drain_s))
        oracle_s = foresee(calls, boot_s).replica_s
        for name, policy, load in (
            ("scales", eased, calls), ("tight", tight, calls), ("yields", tight, beside)
        ):  # fmt: skip
            refused, calls_s, items = _run(policy, load, boot_s)
            say(f"{name}, a boot of {boot_s:g} s: {refused:.2%} refused")
            report.add(
                f"yielding_{boot_s:g}_{name}_", refused=refused, over_oracle=calls_s / oracle_s,
                items=items,
            )  # fmt: skip


def _run(policy: Policy, load: Load, boot_s: float) -> tuple[float, float, float]:
    """Returns the share of calls that are refused, the time of replicas less the work of items,
    and that work, in replicas."""
    first = ceil(load.mean / policy.target_used + load.items)
    run = simulate(Autoscaler(policy, first), load, boot_s, first)
    return run.refused, run.replica_s - run.items_s, run.items_s / (len(load.work) * load.step_s)
