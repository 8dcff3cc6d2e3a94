"""Adapters whose files lie in artifacts, of the models that a worker has loaded: verified and
staged before their base serves them, and tried again where that failed."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf

from jobs import clock
from jobs.models.adapters import Adapter, RefusedAdapter
from jobs.models.model import AdaptedModel
from jobs.store.queue.workers import ModelRow
from workers.process.artifacts.staging import Stager

_log = logging.getLogger(__name__)
_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0


@dataclass(slots=True)
class _Staged:
    base: str  #: name@version
    adapter: Adapter
    failures: int = 0  #: in a row
    retry_s: float = inf  #: monotonic


class StagedAdapters:
    """Adapters by their models' name@version. For one thread, but for `rows`."""

    def __init__(self, stager: Stager, stopped: Callable[[], bool]) -> None:
        self._stager, self._stopped = stager, stopped
        self._staged = dict[str, _Staged]()

    def stage(self, models: Iterable[AdaptedModel]) -> Mapping[str, Adapter]:
        """Returns those of these adapters whose files lie in artifacts, by own name. What is new,
        or failed a while ago, is verified and staged first."""
        found = dict[str, Adapter]()
        for model in models:
            if model.adapter.needs_staging and not self._stopped():
                found[model.adapter_name] = self._one(model).adapter
        return found

    def _one(self, model: AdaptedModel) -> _Staged:
        now_s, before = clock.monotonic(), self._staged.get(model.key)
        if before and now_s < before.retry_s:
            return before
        staged = _Staged(model.base.key, self._stager.stage_adapter(model, self._stopped))
        if isinstance(staged.adapter, RefusedAdapter):
            failures = before.failures if before else 0
            staged.failures = failures + 1
            staged.retry_s = now_s + min(_FIRST_RETRY_S * 2**failures, _LONGEST_RETRY_S)
            _log.error("%s can't be loaded: %s", model.key, staged.adapter.problem)
        self._staged[model.key] = staged
        return staged

    def forget(self, base: str) -> None:
        """Forgets the adapters of a version that is out of memory."""
        self._staged = {key: one for key, one in self._staged.items() if one.base != base}

    def rows(self) -> list[ModelRow]:
        """Returns those that failed, as models of this worker."""
        return [
            ModelRow(key, "failed", 0.0, 0.0, one.adapter.problem)
            for key, one in self._staged.copy().items()
            if isinstance(one.adapter, RefusedAdapter)
        ]
