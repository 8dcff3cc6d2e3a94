"""Models that are served now: those of the models file, which is watched, and of the registry.

Versions come and go while processes run.
"""

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from jobs.models import builtin_models, models_file
from jobs.models.adapters import Adapter
from jobs.models.model import Model
from jobs.models.pricing import Price
from jobs.models.registered import Registered, union
from jobs.models.registry import Registry
from jobs.settings import SettingsError

_log = logging.getLogger(__name__)
_Stamp: TypeAlias = tuple[int, int, int] | None


class ModelsFile:
    """Models that are declared now, in the file or in the registry.

    A broken file is logged and changes nothing; so does an entry that changed under its name and
    version, its price and adapters aside. Raises SettingsError if the file is broken from the
    start. Any thread may call the methods.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stamp = _stamp(path)
        self._changing = threading.Lock()
        #: those of the file
        self.declared = builtin_models.SAMPLES if path is None else models_file.read(path)
        self.registered = Registered()  #: what the registry held when it was last read
        self.models = self.declared  #: all that is served

    def poll(self) -> bool:
        """Reads the file if it has changed; returns True if its models have."""
        stamp = _stamp(self._path)
        if self._path is None or stamp == self._stamp:
            return False
        with self._changing:
            self._stamp = stamp
            try:
                declared = models_file.read(self._path)
            except SettingsError as error:
                _log.error("what was declared before stays in force: %s", error)
                return False
            models = _with_old_entries(self.declared, declared)
            if problems := models_file.problems_of(models):
                _log.error(
                    "what was declared before stays in force: %s", "; ".join(problems.values())
                )
                return False
            self.declared = Registry(models)
            self.models = union(self.declared, self.registered)
        return True

    def adopt(self, registered: Registered) -> bool:
        """Takes over what the registry holds now; returns True if that has changed."""
        with self._changing:
            if registered == self.registered:
                return False
            self.registered = registered
            self.models = union(self.declared, registered)
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
    return [
        replace(
            old.get(model.key, model),
            price=model.price,
            created=model.created,
            adapters=tuple(_with_old_adapters(before, model)),
        )
        for model in declared
    ]


def _with_old_adapters(before: Registry, model: Model) -> Iterator[Adapter]:
    """Yields the adapters of an entry: they come and go, but one never changes."""
    old = before.adapters_of(model.key)
    for adapter in model.adapters:
        known = old[adapter.name].adapter if adapter.name in old else adapter
        if known.identity != adapter.identity or known.path != adapter.path:
            _log.error(
                "%s:%s has changed: give the adapter another name; the old one stays",
                model.key,
                adapter.name,
            )
            adapter = replace(known, tenants=adapter.tenants, price=adapter.price)
        yield adapter


def _stamp(path: Path | None) -> _Stamp:
    try:
        stat = path and path.stat()
    except OSError:
        return None
    return (stat.st_mtime_ns, stat.st_size, stat.st_ino) if stat else None
