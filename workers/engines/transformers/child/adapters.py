"""Adapters of the child process: loaded on threads, and put into their slots between two steps."""

import queue
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from jobs import clock
from jobs.models.adapters import Adapter
from workers.engines.adapters import lora
from workers.engines.adapters.lora import Lora
from workers.engines.adapters.stacked import StackedAdapters
from workers.engines.generator import AdapterLoaded
from workers.engines.protocol import Permanent, Transient
from workers.engines.transformers.messages import LoadAdapter

_THREADS = 2
_WAIT_S = 0.02  # of a step without sequences, for a load that is under way

_Read: TypeAlias = tuple[LoadAdapter, Lora | Exception, float]  # what was read, and seconds


class LoadedAdapters:
    """Adapters of a model, by slot. All methods are for the thread of the steps."""

    def __init__(self, model: Any, slots: int) -> None:
        self.stacked = StackedAdapters.of_model(model, slots)
        self._slots: dict[str, int] = {}  # of loaded ones, by identity
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="adapter")
        self._read: queue.SimpleQueue[tuple[LoadAdapter, Lora | Exception, float]] = (
            queue.SimpleQueue()
        )
        self._loading = 0

    def slot(self, adapter: Adapter) -> int | None:
        """Returns the slot of an adapter; None where it isn't loaded."""
        return self._slots.get(adapter.identity)

    def begin(self, load: LoadAdapter) -> None:
        """Begins to load an adapter; what the slot had is gone."""
        self._slots = {key: slot for key, slot in self._slots.items() if slot != load.slot}
        self._loading += 1
        if load.at_once:
            self._read.put(self._load(load))
        else:
            self._threads.submit(lambda: self._read.put(self._load(load)))

    def install(self, *, idle: bool) -> list[AdapterLoaded]:
        """Puts what was loaded into its slots. idle: no sequence waits, it may take a moment."""
        ended: list[AdapterLoaded] = []
        while self._loading:
            try:
                load, found, took_s = self._read.get(timeout=_WAIT_S if idle else 0)
            except queue.Empty:
                break
            idle = False
            self._loading -= 1
            if isinstance(found, Exception):
                ended.append(AdapterLoaded(load.slot, took_s, found))
                continue
            since_s = clock.monotonic()
            self.stacked.put(load.slot, found)
            self._slots[load.adapter.identity] = load.slot
            ended.append(AdapterLoaded(load.slot, took_s + clock.monotonic() - since_s))
        return ended

    def _load(self, load: LoadAdapter) -> _Read:
        """Returns the matrices, or why there are none, and the seconds that it took."""
        since_s, stacked = clock.monotonic(), self.stacked
        found: Lora | Exception
        try:
            found = lora.load(load.adapter, stacked.shapes, stacked.dtype, stacked.device)
        except (Permanent, Transient) as error:
            found = error
        except Exception as error:  # what an adapter breaks is itself alone
            found = Permanent(f"adapter {load.adapter.name}: {type(error).__name__}: {error}")
        return load, found, clock.monotonic() - since_s
