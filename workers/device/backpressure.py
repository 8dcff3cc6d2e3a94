"""Detects that calls leave the device no time for items, which should go to another worker."""

from dataclasses import dataclass

_HEARTBEATS = 10  # items that would take longer than so many heartbeats do not move on
_IN_A_ROW = 2


@dataclass(slots=True)
class Backpressure:
    """Launches of one model between two heartbeats."""

    active: bool = False  #: True: slices but the oldest go back, and one is claimed at a time
    _items: int = 0
    _calls: int = 0
    _slow: int = 0

    def count_launch(self, items: int, calls: int) -> None:
        """Counts the entries of one launch."""
        self._items += items
        self._calls += calls

    def update(self, waiting: int) -> bool:
        """Ends a heartbeat's count; returns `active`. waiting: items in the lanes now.

        Becomes active at the second heartbeat in a row that launched, beside calls, so few items
        that the rest would take many more. Ends with a heartbeat without calls, or one that
        launched as many items as wait now."""
        items, calls = self._items, self._calls
        self._items = self._calls = 0
        if not calls or items >= waiting:
            self._slow, self.active = 0, False
        elif items * _HEARTBEATS < waiting:
            self._slow += 1
            self.active = self.active or self._slow >= _IN_A_ROW
        else:
            self._slow = 0
        return self.active
