"""Inputs with adapters, of a model that runs in launches.

The matrices are a part of what the engine gets for an input, so that inputs of any adapters share a
launch. Calls whose adapter isn't loaded are parked: a thread of their own loads it, and launches
them. Items wait for it on the thread of their claim. Nobody else waits.
"""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from jobs import clock
from jobs.calls.messages import Call
from jobs.models.adapters import Adapter
from jobs.models.model import Model
from jobs.telemetry.metrics import adapters as metrics
from workers.device.adapters.claim_view import unknown_adapter
from workers.device.delivery import Delivery
from workers.device.monitoring.watchdog import LaunchDeadline
from workers.device.prepare import items_of, prepare
from workers.engines.protocol import Adapted, AdaptingEngine, Engine, InvalidInput
from workers.items.in_flight import InFlightSlice, ItemOutcome, end_together
from workers.scheduler.entries import Entry, Launch
from workers.scheduler.snapshot import Rules

_log = logging.getLogger(__name__)
_LOAD_S = 600.0  # in which an adapter is loaded, or the worker hangs


@dataclass(frozen=True, slots=True, eq=False)
class _Parked:
    """Call that waits for its adapter."""

    entry: Entry
    adapter: Adapter
    params: Mapping[str, Any]
    token: int  #: of the take that it came with


class LaunchInputs:
    """Prepares the inputs of one model, with their adapters."""

    def __init__(
        self,
        model: Model,
        engine: Engine,
        rules: Rules,
        delivery: Delivery,
        deadline: LaunchDeadline,
    ) -> None:
        self.adapters: dict[str, Adapter] = {}  #: declared for the model, by name
        self._model, self._engine, self._rules = model, engine, rules
        self._delivery, self._deadline = delivery, deadline
        self._loads = engine if isinstance(engine, AdaptingEngine) else None
        self._parked: dict[_Parked, None] = {}
        self._changed = threading.Condition()  # guards the parked calls
        self._stopping = False

    @property
    def parks(self) -> bool:
        """True if calls may be parked, and a thread must launch them."""
        return self._loads is not None

    def calls(self, calls: Sequence[Call], params: Mapping[str, Any], token: int) -> list[Entry]:
        """Returns calls as entries, without those that are parked. Calls that the model rejects are
        answered at once. token: of the take that they came with."""
        with self._deadline.within(self._model.limits.max_launch_s, calls=len(calls)):
            prepared = prepare(self._model, self._engine, [call.input for call in calls], params)
        entries = []
        for call, entry in zip(calls, prepared, strict=True):
            if isinstance(entry, InvalidInput):
                self._delivery.reject(call, entry, params)
                continue
            entry.owner, entry.tenant = call, call.tenant
            entry.arrived_s = call.enqueued_ms / 1000
            if not call.adapter or self._is_loaded(call, entry, params, token):
                entries.append(entry)
        return entries

    def _is_loaded(self, call: Call, entry: Entry, params: Mapping[str, Any], token: int) -> bool:
        """Adds its adapter to a call; parks it where that isn't loaded."""
        adapter = self.adapters.get(call.adapter)
        if adapter is None or self._loads is None:
            self._delivery.reject(call, unknown_adapter(call.adapter), params)
            return False
        if loaded := self._loads.loaded_adapter(adapter):
            entry.data = Adapted(entry.data, loaded)
            return True
        with self._changed:
            self._parked[_Parked(entry, adapter, params, token)] = None
            self._changed.notify()
        return False

    def items(
        self,
        owners: Sequence[InFlightSlice],
        seqs: Sequence[int],
        parts: Sequence[int],
        inputs: Sequence[Any],
        params: Mapping[str, Any],
        adapter: Adapter | None,
    ) -> list[Entry]:
        """Returns inputs of slices as entries, once their adapter is loaded. One that the model
        rejects fails at once, and all do where the adapter is broken."""
        with self._deadline.within(self._model.limits.max_launch_s, items=1):
            prepared = prepare(self._model, self._engine, inputs, params)
        entries = items_of(owners, seqs, parts, prepared)
        if adapter is None or not entries:
            return entries
        loaded = self._load(adapter)
        if isinstance(loaded, Exception):
            end_together(
                [
                    (one.owner, ItemOutcome(one.seq, 0, 0.0, None, loaded, part=one.part))
                    for one in entries
                ]
            )
            return []
        for entry in entries:
            entry.data = Adapted(entry.data, loaded)
        return entries

    def next_parked(self) -> Launch | None:
        """Waits for parked calls, and returns a launch of those of one adapter, which is loaded
        now. Returns None once it stops and none is left."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._parked or self._stopping)
                if not self._parked:
                    return None
                first = next(iter(self._parked))
                parked = list(islice(self._like(first), self._model.limits.most_rows))
                for one in parked:
                    del self._parked[one]
            loaded = self._load(first.adapter)
            if not isinstance(loaded, Exception):
                return self._launch(parked, loaded)
            for one in parked:
                self._delivery.reject(one.entry.owner, loaded, one.params)

    def stop(self) -> None:
        """Ends `next_parked` once no call is left."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _like(self, first: _Parked) -> Iterator[_Parked]:
        """Yields calls of one adapter, lane and take."""
        for one in self._parked:
            same = one.token == first.token and one.entry.lane == first.entry.lane
            if same and one.adapter.identity == first.adapter.identity:
                yield one

    def _launch(self, parked: Sequence[_Parked], loaded: Any) -> Launch:
        for one in parked:
            one.entry.data = Adapted(one.entry.data, loaded)
        rules, first = self._rules, parked[0]
        launch = Launch(
            first.params,
            "pace",
            [one.entry for one in parked],
            [],
            clock.monotonic(),
            pads=rules.pads,
            sized=rules.sized,
        )
        launch.background, launch.token = True, first.token
        return launch

    def _load(self, adapter: Adapter) -> Any:
        """Returns an adapter for the engine, or why it can't be used."""
        if self._loads is None:
            return unknown_adapter(adapter.name)
        since_s, outcome = clock.monotonic(), "failed"
        try:
            if loaded := self._loads.loaded_adapter(adapter):
                return loaded
            with self._deadline.within(_LOAD_S, items=1):
                loaded = self._loads.load_adapter(adapter)
            outcome = "ready"
        except Exception as error:
            _log.warning("%s: %s", self._model.key, error)
            loaded = error
        slots = self._loads.held_adapters
        evicted, took_s = slots.take_evictions(), clock.monotonic() - since_s
        metrics.loaded(self._model.key, outcome, took_s, evicted, slots.used)
        return loaded
