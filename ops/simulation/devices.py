"""Kinds of devices and their prices: `[[device]]` in the models file."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from jobs.models.model import Model
from jobs.settings import SettingsError
from workers.simulation.costs import LaunchTimes

_KEYS = ("name", "price_per_hour", "speed", "launch_ms")
_NUMBERS = "a list of up to four numbers, 0 or more: fixed, per row, per unit, per squared unit"


@dataclass(frozen=True, slots=True)
class Device:
    """Kind of device."""

    name: str
    price_per_hour: float | None = None  #: of one device, in any currency
    speed: float = 1.0  #: factor over the device that launch times were measured on
    #: By model@version: ms fixed, per row, per unit, per squared unit.
    launch_ms: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def own_times(self, model: Model) -> LaunchTimes | None:
        """Times declared for this model, if any."""
        declared = self.launch_ms.get(model.key)
        return None if declared is None else launch_times(declared)


#: Used where no device is declared: the one that launch times come from.
THIS = Device("as measured")


def launch_times(numbers_ms: tuple[float, ...]) -> LaunchTimes:
    """Converts ms (fixed, per row, per unit, per squared unit; missing ones are 0)."""
    fixed_s, row_s, unit_s, square_s = (ms / 1000 for ms in (*numbers_ms, 0, 0, 0, 0)[:4])
    return LaunchTimes(fixed_s, row_s, unit_s, square_s)


def read(path: Path | None) -> list[Device]:
    """Reads the devices of a models file; default: THIS. Raises SettingsError with all problems."""
    if path is None:
        return [THIS]
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError([f"models file {path} can't be read: {error.strerror}"]) from error
    except ValueError as error:
        raise SettingsError([f"models file {path} is not valid TOML: {error}"]) from error
    entries = document.get("device", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SettingsError([f"{path}: a device is declared under [[device]], in double brackets"])
    problems: list[str] = []
    found = [
        device
        for n, entry in enumerate(entries, start=1)
        if (device := _device(entry, f"{path}: [[device]] number {n}", problems))
    ]
    names = [device.name for device in found]
    problems += [f"{path} declares the device {name!r} twice" for name in _twice(names)]
    if problems:
        raise SettingsError(problems)
    return found or [THIS]


def _device(entry: Mapping[str, Any], where: str, problems: list[str]) -> Device | None:
    before = len(problems)
    problems += [f"{where}: unknown key {key!r}" for key in entry if key not in _KEYS]
    if not isinstance(name := entry.get("name"), str) or not name:
        problems.append(f"{where}: name must be a string")
    price = entry.get("price_per_hour")
    if price is not None and not _number(price):
        problems.append(f"{where}: price_per_hour must be a number, 0 or more")
    speed = entry.get("speed", 1.0)
    if not _number(speed) or speed == 0:
        problems.append(f"{where}: speed must be a number above 0")
    launch_ms = entry.get("launch_ms", {})
    if not isinstance(launch_ms, dict):
        problems.append(f"{where}: launch_ms must be a table, by model@version")
        launch_ms = {}
    for key, numbers in launch_ms.items():
        if "@" not in key:
            problems.append(f"{where}: launch_ms names {key!r}; it takes model@version")
        if not _launch_ms(numbers):
            problems.append(f"{where}: launch_ms of {key!r} must be {_NUMBERS}")
    if len(problems) > before:
        return None
    own = {key: tuple(map(float, numbers)) for key, numbers in launch_ms.items()}
    return Device(str(name), None if price is None else float(price), float(speed), own)


def _launch_ms(numbers: Any) -> bool:
    if not isinstance(numbers, list) or not 1 <= len(numbers) <= 4:
        return False
    return all(map(_number, numbers)) and any(numbers)


def _number(value: Any) -> bool:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return good and isfinite(value) and value >= 0


def _twice(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
