"""Spot workers: simulated, what a pool with them costs and how much is late; live, machines that
are reclaimed with notice and without, under jobs and streams that are checked to the last token.

Simulated: three days of the shape of an hour of conversations over a day's curve, a mean of ten
replicas, 15 % of the work of calls that stay; four seeds of a market whose machines live six hours
and go by halves every eight, for 20 minutes. Beside them the same pool without spot workers.
"""

from jobs.scaling.policy import Policy
from ops.bench.data import traces
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report
from ops.bench.scaling import spot_fleet
from ops.simulation.scaling import loads
from ops.simulation.scaling.fluid import Load
from ops.simulation.scaling.spot import Market, Prices, SpotRun, cheaper, simulate

ASKED = (
    "spot_cheaper >= 0.4", "spot_late <= 0.01", "spot_late_staying <= 0.01",
    "spot_items_lost <= 0", "spot_items_duplicated <= 0", "spot_items_wrong <= 0",
    "spot_tokens_lost <= 0", "spot_tokens_repeated <= 0", "spot_streams_wrong <= 0",
    "spot_misbilled <= 0", "spot_noticed >= 100", "spot_unwarned >= 100",
)  # fmt: skip
_SEEDS = 4
_STEP_S = 1.0
_STAYING = 0.15  # share of the work
_BOOT_S = 120.0
_ON_DEMAND = Policy(max_replicas=100, boot_s=_BOOT_S)
_MIXED = Policy(
    max_replicas=100, boot_s=_BOOT_S, spot_pool="spot", spot_share=0.75, on_demand_floor=2
)
_RECLAIMS, _QUICK_RECLAIMS = 100, 4  # of each kind


def measure(report: Report, scale: Scale) -> None:
    """Simulates, then reclaims."""
    conv = loads.from_arrivals(traces.hour(), 5.0, step_s=_STEP_S)
    _simulate(report, loads.days(conv, 1 if scale.quick else 3, 10.0))
    spot_fleet.measure(report, _QUICK_RECLAIMS if scale.quick else _RECLAIMS)


def _simulate(report: Report, load: Load) -> None:
    terms = Market(), Prices()
    mixed = [simulate(load, _MIXED, *terms, staying=_STAYING, seed=n) for n in range(_SEEDS)]
    alone = simulate(load, _ON_DEMAND, *terms, staying=_STAYING, seed=0)
    for run in mixed:
        say(_words(run))
    report.add(
        "spot_",
        cheaper=cheaper(mixed, [alone] * len(mixed)),
        late=max(run.late for run in mixed),
        late_staying=max(run.late_staying for run in mixed),
        late_alone=alone.late,
        reclaims=sum(run.reclaims for run in mixed),
        share=sum(run.spot_s for run in mixed) / sum(run.spot_s + run.on_demand_s for run in mixed),
    )


def _words(run: SpotRun) -> str:
    return (
        f"cost {run.cost:.1f}, {run.late:.2%} late, {run.late_staying:.2%} of calls that stay; "
        f"{run.reclaims} reclaims, {run.unwarned} of machines in use without notice"
    )
