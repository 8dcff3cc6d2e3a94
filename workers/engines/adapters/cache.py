"""Adapters of an engine that runs in launches: loaded by any thread, held in slots.

An input in flight keeps the matrices of its adapter, also where that has left its slot meanwhile.
"""

import threading
from collections.abc import Callable

from jobs import clock
from jobs.models.adapters import Adapter
from workers.engines.adapters.lora import Lora
from workers.engines.adapters.slots import Slots

_PAUSE_S = 0.01  # between two looks for a slot, where all are taken


class AdapterCache:
    """Slots with their matrices. load: reads those of an adapter, and raises where it can't."""

    def __init__(self, slots: int, load: Callable[[Adapter], Lora]) -> None:
        if type(slots) is not int or slots < 1:
            raise ValueError(f"options.adapter_slots must be a whole number from 1, not {slots!r}")
        self.slots, self._load = Slots(slots), load
        self._loras: dict[int, Lora] = {}
        self._changed = threading.Condition()  # guards both

    def find(self, adapter: Adapter) -> Lora | None:
        """Returns the matrices of an adapter that is loaded."""
        with self._changed:
            slot = self.slots.find(adapter)
            if slot is None or not slot.ready:
                return None
            slot.used_s = clock.monotonic()
            return self._loras[slot.index]

    def get(self, adapter: Adapter) -> Lora:
        """Returns the matrices of an adapter, which is loaded where it isn't; waits for a slot.
        Raises what loading does."""
        while (lora := self.find(adapter)) is None:
            since_s = clock.monotonic()
            with self._changed:
                loading = self.slots.find(adapter)
                slot = None if loading else self.slots.assign(adapter, since_s)
                if slot is None:  # another thread loads it, or no slot may be emptied yet
                    self._changed.wait(_PAUSE_S)
                    continue
            try:
                lora = self._load(adapter)
            except BaseException:
                with self._changed:
                    slot.clear()
                    self._changed.notify_all()
                raise
            with self._changed:
                self._loras[slot.index] = lora
                now_s = clock.monotonic()
                self.slots.loaded(slot, now_s, now_s - since_s)
                self._changed.notify_all()
        return lora
