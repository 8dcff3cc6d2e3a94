"""Sequences that wait for their adapter: they reach the scheduler once it is loaded.

An adapter is loaded while steps go on. Where all slots are taken, the least recently used one is
emptied: no new sequence gets it, and those that it has end first. Items give way to a call.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from jobs.models.adapters import Adapter
from workers.engines.adapters.slots import Slot, Slots
from workers.engines.generator import AdapterLoaded, Adapting, Generator
from workers.generation.requests import Request, Sequenced
from workers.generation.scheduler import GenerationScheduler

LOOK_AGAIN_S = 0.01
"""Time between two looks for a slot, where nothing else happens."""


class AdapterGate:
    """Slots of a generator, and the sequences that wait for one. It has neither thread nor clock.

    Engines that know their adapters by name have no slots: their sequences pass.
    """

    def __init__(self, engine: Generator, scheduler: GenerationScheduler) -> None:
        self._engine = engine if isinstance(engine, Adapting) else None
        self._scheduler = scheduler
        self.declared: dict[str, Adapter] = {}  #: of the model, by name
        self.slots = Slots(self._engine.adapter_slots if self._engine else 0)
        self._waiting: dict[Sequenced, Adapter] = {}  # in the order of their arrival

    @property
    def loading(self) -> bool:
        """True while an adapter is being loaded."""
        return any(slot.adapter and not slot.ready for slot in self.slots)

    @property
    def waits(self) -> bool:
        """True while a sequence waits for its adapter."""
        return bool(self._waiting)

    @property
    def waiting_calls(self) -> int:
        """Sequences of calls that wait for their adapters."""
        return sum(sequence.request.is_call for sequence in self._waiting)

    @property
    def items(self) -> Sequence[Sequenced]:
        """Sequences of items that wait for their adapters."""
        return [sequence for sequence in self._waiting if not sequence.request.is_call]

    def put(self, sequences: Sequence[Sequenced], now_s: float) -> None:
        """Queues sequences of one request, now or once its adapter is loaded."""
        adapter = sequences[0].request.adapter if sequences else None
        if adapter is None or self._engine is None:
            self._scheduler.put(sequences)
            return
        slot = self.slots.find(adapter)
        if slot and slot.ready and not slot.closing:
            self._enter(slot, sequences, now_s)
        else:
            self._waiting.update(dict.fromkeys(sequences, adapter))

    def leave(self, sequence: Sequenced) -> bool:
        """Forgets a sequence; returns True if it waited here, and not in the scheduler."""
        for slot in self.slots:
            slot.users.pop(sequence, None)
        return self._waiting.pop(sequence, None) is not None

    def load(self, now_s: float, take_out: Callable[[Sequenced], None]) -> None:
        """Has the engine load adapters that are waited for, those of calls first. take_out: takes
        an item out of the scheduler, which gives its slot to a call, and waits again."""
        if self._engine is None or not self._waiting:
            return
        closing = [slot for slot in self.slots if slot.closing]
        for adapter, for_call in self._wanted(now_s):
            if slot := self.slots.assign(adapter, now_s):
                self._engine.load_adapter(slot.index, adapter)
                continue
            emptied = closing.pop(0) if closing else self._close(now_s, for_call=for_call)
            if emptied and for_call and not _has_calls(emptied):
                for item in list(emptied.users):
                    take_out(item)
                    self.put([item], now_s)

    def loaded(self, loaded: AdapterLoaded, now_s: float) -> Iterable[Request]:
        """Takes the end of a load: sequences that waited for it go on. Returns the requests that
        fail, where the adapter is broken."""
        slot = next(slot for slot in self.slots if slot.index == loaded.slot)
        if slot.ready or slot.adapter is None:  # loaded again, by an engine that was restarted
            return ()
        if loaded.error is None:
            self.slots.loaded(slot, now_s, loaded.load_s)
            self._enter_all(slot, now_s)
            return ()
        its = dict.fromkeys(one.request for one in self._waiting_for(slot.adapter))
        slot.clear()
        return its

    def _enter(self, slot: Slot, sequences: Sequence[Sequenced], now_s: float) -> None:
        slot.users.update(dict.fromkeys(sequences))
        slot.used_s = now_s
        self._scheduler.put(sequences)

    def _enter_all(self, slot: Slot, now_s: float) -> None:
        """Queues all that waited for the adapter of a slot."""
        assert slot.adapter
        its = self._waiting_for(slot.adapter)
        for sequence in its:
            del self._waiting[sequence]
        self._enter(slot, its, now_s)

    def _waiting_for(self, adapter: Adapter) -> list[Sequenced]:
        identity = adapter.identity
        return [one for one, wanted in self._waiting.items() if wanted.identity == identity]

    def _wanted(self, now_s: float) -> Iterator[tuple[Adapter, bool]]:
        """Yields adapters that have no slot, each once: those that calls wait for first."""
        seen = set[str]()
        for sequence, adapter in sorted(
            self._waiting.items(), key=lambda one: not one[0].request.is_call
        ):
            if adapter.identity in seen:
                continue
            seen.add(adapter.identity)
            if (slot := self.slots.find(adapter)) is None:
                yield adapter, sequence.request.is_call
            elif slot.closing and not slot.users:  # no other adapter took it
                slot.closing = False
                self._enter_all(slot, now_s)

    def _close(self, now_s: float, *, for_call: bool) -> Slot | None:
        """Has a slot end what it has, for another adapter: where a call waits, one without calls
        if there is any."""
        suit: Sequence[Callable[[Slot], bool]] = (
            lambda slot: not slot.closing and not (for_call and _has_calls(slot)),
            lambda slot: not slot.closing,
        )
        for suits in suit:
            if slot := self.slots.oldest(now_s, suits):
                slot.closing = True
                return slot
        return None


def _has_calls(slot: Slot) -> bool:
    return any(sequence.request.is_call for sequence in slot.users)
