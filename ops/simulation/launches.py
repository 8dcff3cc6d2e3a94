"""Sources of launch times: measured now, read from a file, or given."""

import json
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import click

from jobs.models.model import Model
from ops.simulation.devices import launch_times
from workers.simulation.costs import LaunchTimes

_KEYS = ("fixed_ms", "row_ms", "unit_ms", "square_ms")
_GIVEN = "up to four numbers with commas between: fixed, per row, per unit, per squared unit"


class TimesError(click.ClickException):
    """Reports invalid launch times."""


def measured(model: Model, device: str, models_path: Path | None = None) -> LaunchTimes:
    """Loads the model's engine, runs the sweep that a worker warms up with, and fits it.

    models_path: models file that declares it.
    """
    from workers.device.warmup.measure import measure_launch_times
    from workers.engines import registry as engines
    from workers.engines.common import user_code
    from workers.scheduler.snapshot import Rules

    user_code.search_beside(models_path)
    engine = engines.load_engine(model, device)
    found = measure_launch_times(model, engine, Rules.from_model(model))
    if not found:
        raise TimesError(f"the engine of {model.key} has no samples; give --launch-ms")
    return LaunchTimes.fitted(found)


def parse_times(text: str) -> LaunchTimes:
    """Parses "100,0.5,0.01" (milliseconds). Raises TimesError."""
    try:
        numbers = tuple(float(number) for number in text.split(","))
    except ValueError:
        raise TimesError(f"--launch-ms takes {_GIVEN}; not {text!r}") from None
    if len(numbers) > len(_KEYS) or not _sound(numbers):
        raise TimesError(f"--launch-ms takes {_GIVEN}, none below 0 and not all 0; not {text!r}")
    return launch_times(numbers)


def from_file(path: Path, model: Model) -> LaunchTimes:
    """Reads the output of `millrace simulate --json`, or the launch_times in it."""
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise TimesError(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise TimesError(f"{path} is not JSON: {error}") from error
    found = document.get("launch_times", document) if isinstance(document, dict) else None
    if not isinstance(found, dict) or "fixed_ms" not in found:
        raise TimesError(f"{path} has no launch_times; make it by `millrace simulate … --json`")
    if (other := found.get("model", model.key)) != model.key:
        raise TimesError(f"{path} holds the times of {other}, not of {model.key}")
    numbers = tuple(found.get(key, 0) for key in _KEYS)
    ratios = tuple(found.get("ratios", [1.0]))
    if not _sound(numbers) or not ratios or not _sound(ratios):
        raise TimesError(f"{path}: {', '.join(_KEYS)} and ratios must be numbers, none below 0")
    times = launch_times(numbers)
    return LaunchTimes(times.fixed_s, times.row_s, times.unit_s, times.square_s, ratios)


def as_json(model: Model, times: LaunchTimes) -> Mapping[str, Any]:
    """Object that `from_file` reads."""
    numbers = times.fixed_s, times.row_s, times.unit_s, times.square_s
    found = {key: float(f"{1000 * n:.6g}") for key, n in zip(_KEYS, numbers, strict=True)}
    ratios = [round(ratio, 4) for ratio in times.ratios]
    return {"model": model.key, **found, "ratios": ratios}


def _sound(numbers: tuple[Any, ...]) -> bool:
    good = all(isinstance(n, int | float) and isfinite(n) and n >= 0 for n in numbers)
    return good and any(numbers)
