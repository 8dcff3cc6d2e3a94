"""Cache of slow database queries: the longer a query took, the longer its result is valid."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

from jobs import clock

T = TypeVar("T")
_SHARE = 0.002  # of a core spent on one query, at most
_MAX_ENTRIES = 256


class AdaptiveCache(Generic[T]):
    """Cache by key. Thread-safe; two threads may load the same key at once."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, tuple[T, float]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, load: Callable[[], T]) -> T:
        """Returns the value of a key, from `load` if it has expired."""
        began_s = clock.monotonic()
        with self._lock:
            if key in self._entries and self._entries[key][1] > began_s:
                return self._entries[key][0]
        value = load()
        now_s = clock.monotonic()
        with self._lock:
            self._entries[key] = (value, now_s + (now_s - began_s) / _SHARE)
            self._entries.move_to_end(key)
            if len(self._entries) > _MAX_ENTRIES:
                self._entries.popitem(last=False)
        return value
