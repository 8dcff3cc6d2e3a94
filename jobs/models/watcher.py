"""Watcher of the models file: versions come and go while processes run."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from jobs.models import builtin_models, models_file
from jobs.models.model import Model
from jobs.models.pricing import Price
from jobs.models.registry import Registry
from jobs.settings import SettingsError

_log = logging.getLogger(__name__)
_Stamp: TypeAlias = tuple[int, int, int] | None


class ModelsFile:
    """Models that are declared now.

    A broken file is logged and changes nothing; so does an entry that changed under its name and
    version, its price aside. Raises SettingsError if the file is broken from the start.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stamp = _stamp(path)
        self.models = builtin_models.SAMPLES if path is None else models_file.read(path)

    def poll(self) -> bool:
        """Reads the file if it has changed; returns True if its models have."""
        stamp = _stamp(self._path)
        if self._path is None or stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            declared = models_file.read(self._path)
        except SettingsError as error:
            _log.error("what was declared before stays in force: %s", error)
            return False
        models = _with_old_entries(self.models, declared)
        if problems := models_file.problems_of(models):
            _log.error("what was declared before stays in force: %s", "; ".join(problems))
            return False
        self.models = Registry(models)
        return True

    def price(self, model: Model) -> Price:
        """Returns the current price; of a model that is not declared any more, its last one."""
        return (self.models.get(model.key) or model).price


def _with_old_entries(before: Registry, declared: Registry) -> list[Model]:
    """Replaces changed entries by the old ones: a version never changes while it is served."""
    old = {model.key: model for model in before}
    for model in declared:
        if old.get(model.key, model) != model:
            _log.error("%s has changed: give it another version; the old one stays", model.key)
    return [replace(old.get(model.key, model), price=model.price) for model in declared]


def _stamp(path: Path | None) -> _Stamp:
    try:
        stat = path and path.stat()
    except OSError:
        return None
    return (stat.st_mtime_ns, stat.st_size, stat.st_ino) if stat else None
