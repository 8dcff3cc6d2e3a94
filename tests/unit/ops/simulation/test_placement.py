"""Plans: kinds of devices, how many of each it takes, also for histories, and the exact optimum."""

import json
import re
import sys
from pathlib import Path

import pytest

from jobs.models import builtin_models, models_file
from jobs.scaling.placement.demand import Demand, Kind
from jobs.scaling.placement.plan import place
from jobs.settings import SettingsError
from ops.bench.scaling import placement as bench
from ops.simulation import devices, history
from ops.simulation.capacity import Capacity
from ops.simulation.devices import Device
from ops.simulation.history import Row
from ops.simulation.placement import exact
from ops.simulation.plan import MOST_REPLICAS, Plan, PlanRequest, cheapest, least, plan
from tests.support.cases import each
from tests.support.command_line import json_of, run_millrace
from tests.unit.workers.simulation.made import BATCHSTRING, batches_of, poisson
from workers.simulation.costs import LaunchTimes, Overheads
from workers.simulation.result import CallEnd, Result

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


GOOD = """
[[device]]
name = "l4"
price_per_hour = 0.71
speed = 2

[[device]]
name = "t4"
launch_ms = { "shout@1" = [4, 0.5], "embed@1" = [1, 0.25, 0.125, 0.0625] }

[[model]]
name = "shout"
version = "1"
engine = "function"
options = { function = "some:thing" }
"""


X = "[[device]]\nname = 'x'\n"


def read(folder: Path, text: str) -> list[Device]:
    path = folder / "models.toml"
    path.write_text(text)
    return devices.read(path)


def test_devices_stand_beside_the_models_and_faults_are_said_all_at_once(tmp_path: Path) -> None:
    l4, t4 = read(tmp_path, GOOD)
    assert (l4.name, l4.price_per_hour, l4.speed) == ("l4", 0.71, 2.0)
    [shout] = models_file.load(tmp_path / "models.toml")
    assert l4.own_times(shout) is None
    assert t4.own_times(shout) == LaunchTimes(0.004, 0.0005)
    assert devices.read(None) == read(tmp_path, "") == [devices.THIS], "that was measured"
    for text, case in each(WRONG, name=repr):
        with case, pytest.raises(SettingsError, match=re.escape(WRONG[text])):
            read(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, "[[device]]\nspeed = 0\n[[device]]\nname = ''\nprice_per_hour = -1")
    assert len(caught.value.problems) == 4


WRONG = {
    "[device]\nname = 'x'": "under [[device]], in double brackets",
    "[[device]]": "name is missing",
    X + "price_per_hour = '1 EUR'": "must be a valid number",
    X + "price_per_hour = -1": "must be greater than or equal to 0",
    X + "speed = 0": "speed must be greater than 0",
    X + "speed = true": "speed must be a valid number",
    X + "colour = 'red'": "unknown key 'colour'",
    X + "launch_ms = 7": "launch_ms must be a table",
    X + "launch_ms = { m = [1] }": "it takes model@version",
    X + "launch_ms = { 'm@1' = [] }": "must be a list of up to four",
    X + "launch_ms = { 'm@1' = [-1] }": "must be a list of up to four",
    X + X: "declares the device 'x' twice",
    "[[device": "is not valid TOML",
}


# -- how many


def result_of(replicas: int, late: int) -> Result:
    calls = [CallEnd(0.0, 0.1, 0.5 if n < late else 0.1, 1, "answered") for n in range(100)]
    return Result(calls, [], replicas, replicas, target_s=0.2, lasted_s=1.0)


@pytest.mark.parametrize("needed", [1, 2, 7, 64, MOST_REPLICAS])
@pytest.mark.parametrize("guess", [1, 5, 64])
def test_the_least_that_does_is_found_from_any_guess(needed: int, guess: int) -> None:
    found = least(lambda replicas: result_of(replicas, 2 if replicas < needed else 1), 0.01, guess)
    assert found.replicas == needed
    assert least(lambda replicas: result_of(replicas, 2), 0.01, guess) is None


def asked(rate_per_s: float, lasts_s: float = 2.0) -> PlanRequest:
    calls = poisson(rate_per_s, lasts_s)
    return PlanRequest(batches_of(32), calls, Overheads(), bad_share=0.01, utilisation=0.8, seed=0)


def planned(rate_per_s: float, device: Device, launch_s: float = 0.1) -> Plan:
    return plan(asked(rate_per_s), device, LaunchTimes(launch_s).faster(device.speed))


def test_a_plan_finds_what_is_obvious() -> None:
    found = planned(1120, Device("one", 2.0))  # 320/s each: three are too few by far
    assert found.result.replicas == 4
    assert found.formula == 5
    assert found.price_per_hour == 8.0
    assert found.price_per_million == pytest.approx(8 / (1120 * 3600) * 1e6, rel=0.05)
    # A device of twice the speed is needed half as often.
    slow, fast = planned(1200, Device("slow")), planned(1200, Device("fast", speed=2.0))
    assert fast.result.replicas <= (slow.result.replicas + 1) // 2
    assert fast.formula == 3


def test_the_cheapest_is_the_one_with_the_lowest_price_per_hour_that_keeps_the_target() -> None:
    plans = [planned(300, Device(name, price)) for name, price in (("a", 3.0), ("b", 1.0))]
    found = planned(20, Device("slow", 0.5), launch_s=0.25)
    assert (found.result, found.price_per_hour, cheapest([found])) == (None, None, None)
    best = cheapest([*plans, found])
    assert best.device.name == "b"


def test_the_formula_counts_full_launches_of_every_size() -> None:
    capacity = Capacity.of(BATCHSTRING, LaunchTimes(0.1), [1] * 10)
    assert (capacity.launch_s, capacity.rows, capacity.per_s) == (0.1, 100, 1000)
    assert capacity.replicas(1600, 0.8) == 2
    assert capacity.replicas(1601, 0.8) == 3
    minilm = builtin_models.SAMPLES.resolve("minilm")  # 512 tokens a launch, two at a time
    mixed = Capacity.of(minilm, LaunchTimes(0.01), [256, 8])
    assert mixed.row_s == pytest.approx((0.01 / 2 + 0.01 / 64) / 2)
    assert mixed.per_s == pytest.approx(2 / mixed.row_s)
