"""Kinds of devices, and how many of each it takes."""

import re
from pathlib import Path

import pytest

from jobs.models import builtin_models, models_file
from jobs.settings import SettingsError
from ops.simulation import devices
from ops.simulation.capacity import Capacity
from ops.simulation.devices import Device
from ops.simulation.plan import MOST_REPLICAS, Plan, PlanRequest, cheapest, least, plan
from tests.support.cases import each
from tests.unit.workers.simulation.made import BATCHSTRING, batches_of, poisson
from workers.simulation.costs import LaunchTimes, Overheads
from workers.simulation.result import CallEnd, Result

pytestmark = pytest.mark.heavy

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
    assert found
    assert found.replicas == needed
    assert least(lambda replicas: result_of(replicas, 2), 0.01, guess) is None


def asked(rate_per_s: float, lasts_s: float = 2.0) -> PlanRequest:
    calls = poisson(rate_per_s, lasts_s)
    return PlanRequest(batches_of(32), calls, Overheads(), bad_share=0.01, utilisation=0.8, seed=0)


def planned(rate_per_s: float, device: Device, launch_s: float = 0.1) -> Plan:
    return plan(asked(rate_per_s), device, LaunchTimes(launch_s).faster(device.speed))


def test_a_plan_finds_what_is_obvious() -> None:
    found = planned(1120, Device("one", 2.0))  # 320/s each: three are too few by far
    assert found.result is not None
    assert found.result.replicas == 4
    assert found.formula == 5
    assert found.price_per_hour == 8.0
    assert found.price_per_million == pytest.approx(8 / (1120 * 3600) * 1e6, rel=0.05)
    # A device of twice the speed is needed half as often.
    slow, fast = planned(1200, Device("slow")), planned(1200, Device("fast", speed=2.0))
    assert slow.result is not None
    assert fast.result is not None
    assert fast.result.replicas <= (slow.result.replicas + 1) // 2
    assert fast.formula == 3


def test_the_cheapest_is_the_one_with_the_lowest_price_per_hour_that_keeps_the_target() -> None:
    plans = [planned(300, Device(name, price)) for name, price in (("a", 3.0), ("b", 1.0))]
    found = planned(20, Device("slow", 0.5), launch_s=0.25)
    assert (found.result, found.price_per_hour, cheapest([found])) == (None, None, None)
    best = cheapest([*plans, found])
    assert best is not None
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
