"""Pools with spot replicas, simulated."""

from jobs.scaling.policy import Policy
from ops.simulation.scaling.fluid import Load
from ops.simulation.scaling.spot import Market, Prices, SpotRun, cheaper, simulate

HOUR = Load([8.0] * 3600, 1.0)
ALONE = Policy(max_replicas=40, boot_s=60)
MIXED = Policy(max_replicas=40, boot_s=60, spot_pool="spot", spot_share=0.75, on_demand_floor=2)
CALM = Market(life_s=1e9, wave_s=1e9)
WILD = Market(life_s=900, wave_s=1200, wave_share=0.5, drought_s=300)


def run(policy: Policy, market: Market, seed: int = 1, staying: float = 0.15) -> SpotRun:
    return simulate(HOUR, policy, market, Prices(), staying=staying, seed=seed)


def test_without_reclaims_spot_replicas_cost_less_and_nothing_is_late() -> None:
    mixed, alone = run(MIXED, CALM), run(ALONE, CALM)
    assert (mixed.reclaims, mixed.late, alone.late, alone.spot_s) == (0, 0, 0, 0)
    assert 0.4 < cheaper([mixed], [alone]) < 0.49
    assert 0.7 < mixed.spot_s / (mixed.spot_s + mixed.on_demand_s) < 0.8


def test_on_demand_replicas_stand_in_while_machines_are_reclaimed() -> None:
    calm, wild = run(MIXED, CALM), run(MIXED, WILD)
    assert wild.reclaims > 20
    assert 0 < wild.unwarned < wild.reclaims
    assert wild.on_demand_s > calm.on_demand_s
    assert wild.late < 0.05
    assert wild.late_staying == 0
    assert run(MIXED, WILD) == wild  # fixed by its seed
    assert run(MIXED, WILD, seed=2) != wild


def test_what_stays_is_done_by_spot_replicas_where_there_are_no_others() -> None:
    policy = Policy(max_replicas=40, boot_s=60, spot_pool="spot", spot_share=1.0)
    found = run(policy, CALM, staying=0.5)
    assert found.late_staying == 0
    assert found.on_demand_s == 0
