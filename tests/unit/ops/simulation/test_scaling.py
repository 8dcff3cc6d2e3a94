"""The simulation of pools: what a fluid does, the autoscaler in it, and spot replicas."""

import sys
from math import ceil
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.scaling.policy import Policy
from ops.cli.main import main
from ops.simulation.scaling import loads, spot
from ops.simulation.scaling.compare import compare
from ops.simulation.scaling.controllers import Autoscaler, Static
from ops.simulation.scaling.fluid import Load, simulate
from ops.simulation.scaling.oracle import foresee
from ops.simulation.scaling.spot import Market, Prices, SpotRun, cheaper
from tests.support.command_line import json_of, run_millrace
from tests.unit.workers.simulation.made import poisson

POLICY = Policy(max_replicas=50, boot_s=30, forecast=0)
STEP = loads.step(0.8, 8.0, at_s=300, lasts_s=1200)


def test_a_static_pool_refuses_what_is_above_it_and_its_queue() -> None:
    run = simulate(Static(2), Load([3.0] * 100, 1.0, target_s=1.0), 0.0, 2)
    assert run.refused == pytest.approx((100 - 2) / 300)
    assert (run.replica_s, run.most, run.changes) == (200, 2, 0)
    load = Load([1.0] * 10 + [3.0] * 10, 1.0, items=2.0, backlog_s=100.0)
    run = simulate(Static(3), load, 0.0, 3)
    assert run.refused == 0
    assert run.items_s == pytest.approx(10 * 2.0), "items do what calls leave"


def test_replicas_cost_from_when_they_are_asked_for_and_stay_while_metrics_are_dead() -> None:
    run = simulate(Autoscaler(POLICY, 2), STEP, 30.0, 2)
    assert run.most == run.replicas[-1] == ceil(8 / POLICY.target_used)
    assert 0 < run.refused < 0.2
    own = Autoscaler(Policy(max_replicas=50, min_stay_s=0), 11)
    load = Load([8.0 if n < 100 else 0.5 for n in range(400)], 1.0)
    run = simulate(own, load, 30.0, 11, faults=[range(100, 400)])
    assert run.replicas[-1] == 11


def test_a_clairvoyant_has_what_each_moment_needs() -> None:
    assert foresee(Load([1.5] * 100, 1.0), 30.0).replica_s == 200
    # A gap shorter than a boot is bridged; after a longer one the boot is paid.
    load = Load([2.0] * 10 + [0.5] * 20 + [2.0] * 10, 1.0)
    assert foresee(load, 30.0).replica_s == 2 * 40
    found = foresee(load, 10.0)
    assert list(found.ready) == [2, 1, 1, 2]
    assert found.replica_s == 60 + 10  # a boot


def test_the_autoscaler_costs_little_more_than_a_clairvoyant_on_days() -> None:
    shape = loads.from_arrivals(poisson(20, 600), 5.0, step_s=10.0)
    found = compare(loads.days(shape, 1, 5.0), POLICY, 30.0)
    assert found.over_oracle(found.runs[0]) <= 1.5
    assert found.runs[0].refused <= 0.01
    assert found.runs[0].replica_s < found.runs[-1].replica_s  # the static pool's


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A comparison of controllers on a trace."""
    trace = tmp_path / "calls.csv"
    trace.write_text("\n".join(f"{at_s:.4f}" for at_s, _ in poisson(20, 300)))
    return ["simulate", "--autoscale", str(trace), "--work", "3"]


def test_the_command_compares_controllers(words: list[str]) -> None:
    words += ["--boot-s", "20"]
    assert "HPA 70%" in run_millrace(*words).output
    names = [one["name"].split()[0] for one in json_of(*words)["controllers"]]
    assert names == ["autoscaler", "HPA", "queue", "static"]
    wrong = CliRunner().invoke(main, [*words, "--policy", '{"min_replicas": -1}'])
    assert "min_replicas: 0 up to" in wrong.output


def test_a_picture_shows_all_controllers_or_what_it_lacks(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = tmp_path / "picture.svg"
    words += ["--picture", str(picture)]
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install 'millrace[bench]'" in CliRunner().invoke(main, words).output
    monkeypatch.undo()
    pytest.importorskip("matplotlib")
    run_millrace(*words)
    text = picture.read_text()
    for name in ("autoscaler", "HPA 70%", "queue length", "static", "clairvoyant"):
        assert name in text


HOUR = Load([8.0] * 3600, 1.0)
ALONE = Policy(max_replicas=40, boot_s=60)
MIXED = Policy(max_replicas=40, boot_s=60, spot_pool="spot", spot_share=0.75, on_demand_floor=2)
CALM = Market(life_s=1e9, wave_s=1e9)
WILD = Market(life_s=900, wave_s=1200, wave_share=0.5, drought_s=300)


def run_spot(policy: Policy, market: Market, seed: int = 1, staying: float = 0.15) -> SpotRun:
    return spot.simulate(HOUR, policy, market, Prices(), staying=staying, seed=seed)


def test_spot_replicas_cost_less_and_on_demand_ones_stand_in_while_they_are_reclaimed() -> None:
    mixed, alone = run_spot(MIXED, CALM), run_spot(ALONE, CALM)
    assert (mixed.reclaims, mixed.late, alone.late, alone.spot_s) == (0, 0, 0, 0)
    assert 0.4 < cheaper([mixed], [alone]) < 0.49
    assert 0.7 < mixed.spot_s / (mixed.spot_s + mixed.on_demand_s) < 0.8
    policy = Policy(max_replicas=40, boot_s=60, spot_pool="spot", spot_share=1.0)
    found = run_spot(policy, CALM, staying=0.5)
    assert found.late_staying == 0
    assert found.on_demand_s == 0
    calm, wild = run_spot(MIXED, CALM), run_spot(MIXED, WILD)
    assert wild.reclaims > 20
    assert 0 < wild.unwarned < wild.reclaims
    assert wild.on_demand_s > calm.on_demand_s
    assert wild.late < 0.05
    assert wild.late_staying == 0
    assert run_spot(MIXED, WILD) == wild  # fixed by its seed
    assert run_spot(MIXED, WILD, seed=2) != wild
