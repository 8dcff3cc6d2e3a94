"""Kinds of devices and their prices: `[[device]]` in the models file, or in a file of kinds."""

import tomllib
from dataclasses import dataclass, field, replace
from math import floor, isfinite
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo

from jobs.models.engines.engine_spec import EntryContext
from jobs.models.model import Model
from jobs.models.models_file import read_table
from jobs.settings import SettingsError
from ops.simulation import curves
from ops.simulation.curves import Measured
from workers.simulation.costs import LaunchTimes

_NUMBERS = "a list of up to four numbers, 0 or more: fixed, per row, per unit, per squared unit"
_Price = Annotated[float, Field(strict=True, ge=0)]
_Share = Annotated[float, Field(strict=True, ge=0, le=1)]


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


def _read_curves(name: Any, info: ValidationInfo) -> dict[str, Measured]:
    """Reads the file of curves, relative to that of the device. Raises ValueError."""
    if not isinstance(name, str):
        raise ValueError("the name of a file is expected")
    folder = info.context.folder if info.context else Path()
    return curves.read(folder / name)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value) and value >= 0


@dataclass(frozen=True, slots=True)
class Device:
    """Kind of device."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    name: Annotated[str, Field(min_length=1)]
    #: of one device, in any currency
    price_per_hour: _Price | None = None
    #: of one that may be taken back at any time; None: there are none
    spot_price_per_hour: _Price | None = None
    spot_share: _Share = 0.0  #: of the devices, that may be such
    memory_gib: Annotated[float, Field(strict=True, gt=0)] | None = None
    boot_s: Annotated[float, Field(strict=True, ge=0)] = 60.0  #: until a new replica is ready
    most: Annotated[int, Field(strict=True, ge=0)] | None = None  #: devices of it; None: any number
    #: factor over the device that launch times were measured on
    speed: Annotated[float, Field(strict=True, gt=0)] = 1.0
    #: by model@version: ms fixed, per row, per unit, per squared unit
    launch_ms: Annotated[dict[str, Any], AfterValidator(_read_launch_ms)] = field(
        default_factory=dict
    )
    #: by model@version, from a file of curves that `millrace model check --json` wrote
    curves: Annotated[Any, AfterValidator(_read_curves)] = field(default_factory=dict)

    def own_times(self, model: Model) -> LaunchTimes | None:
        """Times declared for this model, or measured on such a device, if any."""
        if declared := self.launch_ms.get(model.key):
            return launch_times(declared)
        measured: Measured | None = self.curves.get(model.key)
        return measured.times if measured else None

    def model_gib(self, model: Model) -> float:
        """Memory that a model takes: as declared, or else as it was measured on such a device."""
        measured: Measured | None = self.curves.get(model.key)
        return model.memory_mb / 1024 or (measured.memory_gib if measured else 0.0)

    def spot(self, count: int) -> int:
        """Devices of so many that may be taken back at any time."""
        return 0 if self.spot_price_per_hour is None else floor(count * self.spot_share + 1e-9)

    @property
    def mean_price(self) -> float | None:
        """Price of one an hour, on average over regular and spot ones; None where it is unknown."""
        if self.price_per_hour is None or self.spot_price_per_hour is None:
            return self.price_per_hour
        spot = self.spot_share * self.spot_price_per_hour
        return (1 - self.spot_share) * self.price_per_hour + spot

    def price(self, count: int) -> float | None:
        """Price of so many an hour; None where it is unknown."""
        if self.price_per_hour is None:
            return None
        spot = self.spot(count)
        return (count - spot) * self.price_per_hour + spot * (self.spot_price_per_hour or 0.0)


#: Used where no device is declared: the one that launch times come from.
THIS = Device("as measured")


def launch_times(numbers_ms: tuple[float, ...]) -> LaunchTimes:
    """Converts ms (fixed, per row, per unit, per squared unit; missing ones are 0)."""
    fixed_s, row_s, unit_s, square_s = (ms / 1000 for ms in (*numbers_ms, 0, 0, 0, 0)[:4])
    return LaunchTimes(fixed_s, row_s, unit_s, square_s)


def read(path: Path | None, spot_share: float | None = None) -> list[Device]:
    """Reads the devices of a file; default: THIS. spot_share: in place of each one's own.

    Raises SettingsError with all problems.
    """
    if path is None:
        return [THIS]
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError([f"{path} can't be read: {error.strerror}"]) from error
    except ValueError as error:
        raise SettingsError([f"{path} is not valid TOML: {error}"]) from error
    entries = document.get("device", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SettingsError([f"{path}: a device is declared under [[device]], in double brackets"])
    problems: list[str] = []
    devices: dict[str, Device] = {}
    context = EntryContext(path.parent, "any", {})
    for n, entry in enumerate(entries, start=1):
        try:
            device = read_table(Device, entry, context=context)
        except SettingsError as error:
            problems += [f"{path}: [[device]] number {n}: {problem}" for problem in error.problems]
        else:
            if device.name in devices:
                problems.append(f"{path} declares the device {device.name!r} twice")
            devices[device.name] = device
    if problems:
        raise SettingsError(problems)
    found = list(devices.values()) or [THIS]
    return found if spot_share is None else [replace(it, spot_share=spot_share) for it in found]
