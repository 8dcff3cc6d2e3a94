"""Kinds of devices and their prices: `[[device]]` in the models file."""

import tomllib
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field

from jobs.models.model import Model
from jobs.models.models_file import read_table
from jobs.settings import SettingsError
from workers.simulation.costs import LaunchTimes

_NUMBERS = "a list of up to four numbers, 0 or more: fixed, per row, per unit, per squared unit"
_Price = Annotated[float, Field(strict=True, ge=0)]


def _read_launch_ms(launch_ms: dict[str, Any]) -> dict[str, tuple[float, ...]]:
    """Checks launch times by model@version. Raises ValueError with all problems."""
    problems = [f"launch_ms names {k!r}; it takes model@version" for k in launch_ms if "@" not in k]
    for key, numbers in launch_ms.items():
        length = len(numbers) if isinstance(numbers, list) else 0
        if not 1 <= length <= 4 or not all(map(_is_number, numbers)) or not any(numbers):
            problems.append(f"launch_ms of {key!r} must be {_NUMBERS}")
    if problems:
        raise ValueError(problems)
    return {key: tuple(map(float, numbers)) for key, numbers in launch_ms.items()}


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value) and value >= 0


@dataclass(frozen=True, slots=True)
class Device:
    """Kind of device."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    name: Annotated[str, Field(min_length=1)]
    #: of one device, in any currency
    price_per_hour: _Price | None = None
    #: factor over the device that launch times were measured on
    speed: Annotated[float, Field(strict=True, gt=0)] = 1.0
    #: by model@version: ms fixed, per row, per unit, per squared unit
    launch_ms: Annotated[dict[str, Any], AfterValidator(_read_launch_ms)] = field(
        default_factory=dict
    )

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
    devices: dict[str, Device] = {}
    for n, entry in enumerate(entries, start=1):
        try:
            device = read_table(Device, entry)
        except SettingsError as error:
            problems += [f"{path}: [[device]] number {n}: {problem}" for problem in error.problems]
        else:
            if device.name in devices:
                problems.append(f"{path} declares the device {device.name!r} twice")
            devices[device.name] = device
    if problems:
        raise SettingsError(problems)
    return list(devices.values()) or [THIS]
