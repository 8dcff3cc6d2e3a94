"""Whether items move on beside calls, or should rather go to another worker."""

from dataclasses import dataclass

_PULSES = 10  # what takes longer to be launched than so many pulses does not move on
_IN_A_ROW = 2


@dataclass(slots=True)
class Backpressure:
    """One model's launches between two pulses. squeezed: calls have the device; what waits is to
    be given back but for the oldest slice, and one slice is claimed at a time."""

    under_backpressure: bool = False
    _items: int = 0
    _calls: int = 0
    _slow: int = 0

    def launched(self, items: int, calls: int) -> None:
        self._items += items
        self._calls += calls

    def pulse(self, waiting: int) -> bool:
        """So many items wait now, at the end of a pulse; returns whether they are squeezed.

        They are from the second pulse on that launched so few of them, beside calls, that the rest
        would take many more; until one without calls, or one that could launch all that waits."""
        items, calls = self._items, self._calls
        self._items = self._calls = 0
        if not calls or items >= waiting:
            self._slow, self.under_backpressure = 0, False
        elif items * _PULSES < waiting:
            self._slow += 1
            self.under_backpressure = self.under_backpressure or self._slow >= _IN_A_ROW
        else:
            self._slow = 0
        return self.under_backpressure
