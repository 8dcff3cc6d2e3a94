"""Whether an upstream is asked at all.

closed     it is
open       so many requests failed in a row; it is left alone for a while
half-open  that is over: one request tries; it closes or opens again
"""

from math import inf

MOST_OPEN_S = 300.0
_LEAST_OPEN_S = 0.1


class Breaker:
    """Times are seconds on any one clock."""

    def __init__(self, failures: int, open_s: float) -> None:
        self._most, self._open_s = failures, open_s
        self._failures = 0
        self._until_s = -inf
        self._trying = False

    @property
    def closed(self) -> bool:
        return self._until_s == -inf

    @property
    def trying(self) -> bool:
        return self._trying

    def left_s(self, now_s: float) -> float:
        """How long it stays open; 0 where it is closed or half-open."""
        return max(0.0, self._until_s - now_s)

    def begin(self, now_s: float) -> bool:
        """Whether a request may be sent: any while it is closed, one to try while it is half-open.
        One that tries has one end: `succeed`, `fail` or `withdraw`."""
        if self.closed:
            return True
        if self._trying or self.left_s(now_s):
            return False
        self._trying = True
        return True

    def succeed(self) -> None:
        """There was an answer, to whatever request."""
        self._failures, self._until_s, self._trying = 0, -inf, False

    def fail(self, now_s: float, *, tried: bool, asked_s: float | None = None) -> bool:
        """There was none, or no. tried: by the request that was to try; asked_s: how long the
        upstream asks to be left alone. Returns whether it was closed and has opened."""
        was_closed = self.closed
        self._failures += 1
        if self._failures < self._most if was_closed else not tried:
            return False  # or it began before this opened, and says nothing new
        self._trying = False
        open_s = self._open_s if asked_s is None else asked_s
        self._until_s = now_s + min(max(open_s, _LEAST_OPEN_S), MOST_OPEN_S)
        return was_closed

    def withdraw(self) -> None:
        """The one that was to try ended for a reason of ours: another may."""
        self._trying = False
