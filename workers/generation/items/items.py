"""Items of a generation host: queued, taken back with their slice, and what they have emitted."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from jobs import clock
from jobs.models.adapters import Adapter
from workers.engines.generator import Generator
from workers.engines.protocol import InvalidInput
from workers.generation.admission.adapters import AdapterGate
from workers.generation.delivery import rejected
from workers.generation.items.checkpoints import Unsaved, resume, unsaved
from workers.generation.preparation import item_request
from workers.generation.requests import Prompts, Request, Sequenced, sequences_of
from workers.generation.scheduler import GenerationScheduler
from workers.items.in_flight import InFlightSlice

_PREPARED_AT_ONCE = 64  # items: the first start while others are prepared


class HostItems:
    """Items of one host. Public methods are for any thread, unless the caller holds the lock.

    changed: the lock of the host. prepare: returns the prompts of inputs. leave: takes a sequence
    out of the generator and the scheduler."""

    def __init__(
        self,
        scheduler: GenerationScheduler,
        engine: Generator,
        gate: AdapterGate,
        changed: threading.Condition,
        prepare: Callable[[Sequence[Any]], Sequence[Prompts | InvalidInput]],
        leave: Callable[[Sequenced], None],
    ) -> None:
        self._engine, self._scheduler, self._changed = engine, scheduler, changed
        self._gate = gate
        self._prepare, self._leave = prepare, leave
        self._released: list[InFlightSlice] = []  # to take back
        self._stepping = False

    def submit(
        self,
        owners: Sequence[InFlightSlice],
        seqs: Sequence[int],
        inputs: Sequence[Any],
        parts: Sequence[int],
        adapter: Adapter | None,
    ) -> None:
        """Prepares and queues items, as `Host.submit`."""
        parts = parts or [0] * len(seqs)
        for since in range(0, len(seqs), _PREPARED_AT_ONCE):
            piece = slice(since, since + _PREPARED_AT_ONCE)
            prepared = self._prepare(inputs[piece])
            named = list(zip(owners[piece], seqs[piece], parts[piece], prepared, strict=True))
            refused = [one for one in named if isinstance(one[3], InvalidInput)]
            if refused:
                rejected(*zip(*refused, strict=True))
            with self._changed:
                for owner, seq, part, prompts in named:
                    if not isinstance(prompts, InvalidInput):
                        self._queue(owner, item_request(owner, seq, part, prompts, adapter))
                self._changed.notify_all()

    def _queue(self, owner: InFlightSlice, request: Request) -> None:
        if owner.released:
            owner.withdraw(1)
            return
        capacity = self._engine.capacity
        request.sequences += sequences_of(request, capacity.context_tokens)
        if capacity.resumes and (progress := owner.checkpoints.get(request.seq)):
            resume(request, progress)
        self._gate.put(request.unfinished, clock.monotonic())

    def release(self, in_flight: InFlightSlice) -> None:
        """Takes back the items of a slice that have not ended, those that run too, after the step
        that they are in: they may take long, and their job may have ended."""
        with self._changed:
            in_flight.released = True
            self._released.append(in_flight)
            if not self._stepping:
                self._take_back()
            self._changed.notify_all()

    def step_begins(self) -> None:
        """Leaves items where they are until the step has ended. The caller holds the lock."""
        self._stepping = True

    def step_ended(self) -> None:
        """Takes back what was released meanwhile. The caller holds the lock."""
        self._stepping = False
        self._take_back()

    def _take_back(self) -> None:
        released, self._released = self._released, []
        for in_flight in released:
            its = [one for one in self._unfinished() if one.request.owner is in_flight]
            if self._engine.capacity.resumes:
                in_flight.progress += unsaved(its).pieces
            for sequence in its:
                self._leave(sequence)
            in_flight.withdraw(len({sequence.request for sequence in its}))

    def checkpoint(self, write: Callable[[Unsaved], None]) -> None:
        """Has what items emitted since the last time written."""
        if not self._engine.capacity.resumes:
            return
        with self._changed:
            found = unsaved(self._unfinished())
        if found.pieces:
            write(found)
            with self._changed:
                found.mark_stored()

    def _unfinished(self) -> Sequence[Sequenced]:
        running = (one for one in self._scheduler.running if not one.request.is_call)
        return [*running, *self._scheduler.items, *self._gate.items]
