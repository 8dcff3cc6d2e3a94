"""Plans for histories, and the exact optimum beside them."""

import json
import sys
from pathlib import Path

import pytest

from jobs.scaling.placement.demand import Demand, Kind
from jobs.scaling.placement.plan import place
from ops.bench.scaling import placement as bench
from ops.simulation import history
from ops.simulation.history import Row
from ops.simulation.placement import exact
from tests.support.command_line import json_of, run_millrace

pytestmark = pytest.mark.heavy

KINDS = [Kind("small", 16, 1.0), Kind("large", 80, 4.0)]


def test_the_optimum_of_a_small_case_is_known_and_greedy_costs_hardly_more() -> None:
    pytest.importorskip("scipy")
    demands = [Demand(f"m{n}@1", 2, 10, {"small": 100, "large": 500}) for n in range(7)]
    found = exact.solve(demands, KINDS, 0.7)
    assert (found.price, found.counts) == (1.0, {"small": 1})
    [device] = exact.spread(demands, KINDS, found)
    assert device.models == tuple(f"m{n}@1" for n in range(7))
    assert sum(device.load.values()) == pytest.approx(0.7)
    pytest.importorskip("scipy")
    demands, kinds = bench.demands(seed=0, count=20), bench.kinds()
    plan, best = place(demands, kinds), exact.solve(demands, kinds, time_limit_s=20)
    assert best.bound <= plan.price * (1 + 1e-6)
    assert plan.price <= 1.08 * best.price


def test_too_few_kinds_or_no_scipy_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("scipy")
    demands = [Demand("m@1", 2, 1000, {"small": 100})]
    with pytest.raises(exact.click.ClickException, match="no placement by these kinds"):
        exact.solve(demands, [Kind("small", 16, 1.0, most=1)])
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(exact.click.ClickException, match=r"pip install 'millrace\[bench\]'"):
        exact.solve(demands, KINDS)


# -- histories

MODELS = """
[[model]]
name = "shout"
version = "1"
engine = "function"
target_ms = 300
memory_mb = 2048
options = { function = "some:thing" }
limits = { max_batch = 32 }

[[model]]
name = "whisper"
version = "2"
engine = "function"
target_ms = 300
memory_mb = 4096
options = { function = "some:thing" }
"""
DEVICES = """
[[device]]
name = "small"
memory_gib = 16
price_per_hour = 1.0
spot_price_per_hour = 0.4
boot_s = 30
launch_ms = { "shout@1" = [100], "whisper@2" = [20, 5] }
"""
HOUR = 60


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "models.toml").write_text(MODELS)
    (tmp_path / "devices.toml").write_text(DEVICES)
    rows = [
        Row(60 * n, 60, "calls", "shout@1", calls, 3 * calls, 90.0)
        for n in range(HOUR)
        for calls in [60 * (600 if n == 30 else 100)]
    ]
    rows.append(Row(0, 60, "items", "whisper@2", 36_000, 108_000, 200.0))
    rows.append(Row(0, 60, "calls", "gone@1", 5))
    history.write(tmp_path / "arrivals.csv", rows)
    return [
        "plan", "--history", str(tmp_path / "arrivals.csv"),
        "--models", str(tmp_path / "models.toml"), "--devices", str(tmp_path / "devices.toml"),
    ]  # fmt: skip


def test_a_history_is_planned_for_all_its_models(files: list[str]) -> None:
    found = json_of(*files, "--quantile", "0.95")
    shout, whisper = found["models"]
    assert (shout["calls_per_s"], shout["items_per_s"]) == (100, 0)
    assert (whisper["calls_per_s"], whisper["items_per_s"]) == (0, 10)
    assert shout["rates_per_s"] == {"small": 320}
    assert found["left_out"] == ["gone@1 is not in the models file"]
    assert found["pools"] == [
        {"device": "small", "models": ["shout@1", "whisper@2"], "replicas": 1}
    ]
    assert found["price_per_hour"] == 1.0
    # One minute of 600/s, of which a device of 320/s has no time for about half.
    assert 0.03 < found["missed_share"] < 0.06
    assert found["missed_overload_share"] == pytest.approx(0, abs=1e-9)
    table = run_millrace(*files, "--quantile", "0.95").output
    assert "shout@1 on small: 100.0/s x 3.125 ms / 0.66 = 0.47; 1 alone" in table
    assert "left out: gone@1" in table


def test_the_busiest_minute_may_be_planned_for_with_spot_devices_too(files: list[str]) -> None:
    found = json_of(*files, "--quantile", "1")
    [kind] = found["kinds"]
    assert kind["replicas"] == 3  # 600 / 320 / 0.66 = 2.8
    assert found["missed_share"] == pytest.approx(0, abs=1e-9)
    assert kind["scaled_replicas"] < 2
    found = json_of(*files, "--quantile", "1", "--spot-share", "0.7")
    [kind] = found["kinds"]
    assert (kind["replicas"], kind["spot_replicas"]) == (3, 2)
    assert found["price_per_hour"] == pytest.approx(1.0 + 2 * 0.4)


def test_the_exact_optimum_is_shown_beside(files: list[str]) -> None:
    pytest.importorskip("scipy")
    words = (*files, "--quantile", "0.95", "--exact")
    assert json_of(*words)["exact_price_per_hour"] == 1.0
    assert "of the exact optimum's 1.00" in run_millrace(*words).output


def test_devices_without_memory_or_price_are_refused(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text(MODELS.replace("2048", "20480"))
    said = run_millrace(*files, status=1).output
    assert "shout@1 fits no kind of device: it needs 20 GiB" in said
    text = DEVICES.replace("memory_gib = 16\n", "").replace("price_per_hour = 1.0\nspot_", "spot_")
    (tmp_path / "devices.toml").write_text(text)
    said = run_millrace(*files, status=1).output
    assert "has no memory_gib and no price_per_hour" in said


def test_curves_of_a_check_give_launch_times(files: list[str], tmp_path: Path) -> None:
    """Curves in the format of `millrace model check --json`."""
    points = [{"rows": n, "launch_ms": 20 + 5 * n, "items_per_s": 1000 * n / (20 + 5 * n)}
              for n in (1, 2, 4, 8, 16, 32)]  # fmt: skip
    lines = [
        {"model": key, "memory_mb": 0.0, "curves": [{"bucket": 0, "size": 3.0, "points": points}]}
        for key in ("shout@1", "whisper@2")
    ]
    text = "\n".join(map(json.dumps, [*lines, {"model": "gone@1", "error": "x"}]))
    (tmp_path / "small.jsonl").write_text(text)
    before, _, _ = DEVICES.partition("launch_ms")
    (tmp_path / "devices.toml").write_text(before + 'curves = "small.jsonl"\n')
    [shout, _] = json_of(*files)["models"]
    # 16 rows take 100 ms; 32 would take more than half of the target.
    assert shout["rates_per_s"] == {"small": pytest.approx(160, rel=0.02)}
    (tmp_path / "small.jsonl").write_text("{")
    assert "small.jsonl, line 1" in run_millrace(*files, status=1).output
