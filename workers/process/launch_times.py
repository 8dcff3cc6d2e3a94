"""Launch times that warm-ups measured, in files of the home: a model's next load needs no sweep."""

import hashlib
import json
import logging
import os
import platform
from dataclasses import astuple
from pathlib import Path
from typing import Any

from jobs.models.model import Model
from jobs.version import VERSION
from workers.device.monitoring.device_info import device_kind
from workers.device.warmup.measure import Measured
from workers.scheduler.cost import LaunchSize

_ENGINES = {"echo", "encoder", "function", "huggingface", "minilm"}
"""Engines whose sweep only measures: others may compile or allocate for each size in it."""

_log = logging.getLogger(__name__)


class LaunchTimes:
    """Launch times by model, device and processor; of a home that exists."""

    def __init__(self, home: Path, device: str) -> None:
        self._home, self._device = home, device

    def read(self, model: Model) -> Measured:
        """Returns the times of an earlier load; empty: there are none."""
        path = self._path(model)
        try:
            found = json.loads(path.read_text()) if model.engine in _ENGINES else []
            return [(LaunchSize(*size), float(seconds)) for size, seconds in found]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError) as error:
            _log.warning("%s can't be read, and is measured again: %s", path, error)
            return []

    def write(self, model: Model, measured: Measured) -> None:
        """Keeps the times of a load."""
        if model.engine not in _ENGINES or not self._home.is_dir():
            return
        path = self._path(model)
        draft = path.with_suffix(f".{os.getpid()}")  # workers of one model load it together
        found = [(astuple(size), seconds) for size, seconds in measured]
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            draft.write_text(json.dumps(found))
            draft.replace(path)
        except OSError as error:
            _log.warning("%s can't be written: %s", path, error)
            draft.unlink(missing_ok=True)

    def _path(self, model: Model) -> Path:
        about: tuple[Any, ...] = (
            *(VERSION, platform.machine(), _processor(), os.cpu_count(), device_kind(self._device)),
            *(model.key, model.engine, sorted(model.options.items()), astuple(model.limits)),
            model.bucketing,
        )
        name = hashlib.sha256(repr(about).encode()).hexdigest()[:32]
        return self._home / "launch-times" / f"{name}.json"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("model name")), "")
