"""What takes the database long, asked for seldom: the longer it took, the longer it is good."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

from jobs import clock

T = TypeVar("T")
_SHARE = 0.002
"""Of a core, at most, goes into one answer that somebody watches."""
_MOST = 256


class AdaptiveCache(Generic[T]):
    """Answers by what they answer. Thread-safe; two threads may look at once."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[T, float]] = OrderedDict()
        self._lock = Lock()

    def of(self, question: Hashable, look: Callable[[], T]) -> T:
        began_s = clock.monotonic()
        with self._lock:
            if question in self._kept and self._kept[question][1] > began_s:
                return self._kept[question][0]
        found = look()
        now_s = clock.monotonic()
        with self._lock:
            self._kept[question] = (found, now_s + (now_s - began_s) / _SHARE)
            self._kept.move_to_end(question)
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        return found
