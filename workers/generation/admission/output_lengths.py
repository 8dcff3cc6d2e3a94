"""Lengths of outputs of one model: how many tokens are expected of a sequence."""

from bisect import bisect_left, bisect_right, insort
from collections import deque

_WINDOW = 512  # latest sequences
_FIRST_GUESS = 256  # tokens, before any sequence has ended
_QUANTILE = 0.8
_BEYOND = 1.5  # of a sequence longer than all known: times what it has


class OutputLengths:
    """Distribution of the lengths of the latest outputs."""

    def __init__(self) -> None:
        self._latest = deque[int]()
        self._sorted: list[int] = []
        self._sum = 0

    def add(self, tokens: int) -> None:
        """Counts a sequence that has ended."""
        if len(self._latest) == _WINDOW:
            oldest = self._latest.popleft()
            del self._sorted[bisect_left(self._sorted, oldest)]
            self._sum -= oldest
        self._latest.append(tokens)
        insort(self._sorted, tokens)
        self._sum += tokens

    @property
    def mean(self) -> float:
        """Mean length, tokens."""
        return self._sum / len(self._latest) if self._latest else _FIRST_GUESS

    def expected(self, emitted: int, most: int) -> int:
        """Returns the tokens that a sequence is expected to have in the end: a quantile of those
        that became longer than it is. most: tokens that it may have in all."""
        longer = bisect_right(self._sorted, emitted)
        left = len(self._sorted) - longer
        if left:
            guess = self._sorted[min(len(self._sorted) - 1, longer + int(left * _QUANTILE))]
        else:
            guess = max(int(_BEYOND * emitted), 0 if self._sorted else _FIRST_GUESS)
        return min(max(guess, emitted + 1), max(most, emitted + 1))
