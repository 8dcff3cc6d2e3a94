"""Circuit breaker of an upstream.

closed     requests are sent
open       after several failures in a row; no request is sent for a while
half-open  then one request tries; it closes or opens the breaker
"""

from math import inf

MOST_OPEN_S = 300.0
_LEAST_OPEN_S = 0.1


class Breaker:
    """Circuit breaker; times are seconds on any one clock."""

    def __init__(self, failures: int, open_s: float) -> None:
        self._most, self._open_s = failures, open_s
        self._failures = 0
        self._until_s = -inf
        self._trying = False

    @property
    def closed(self) -> bool:
        """True while requests are sent."""
        return self._until_s == -inf

    @property
    def trying(self) -> bool:
        """True while one request tries."""
        return self._trying

    def left_s(self, now_s: float) -> float:
        """Returns how long it stays open; 0 if closed or half-open."""
        return max(0.0, self._until_s - now_s)

    def begin(self, now_s: float) -> bool:
        """Returns True if a request may be sent: any while closed, one while half-open, which must
        end in `succeed`, `fail` or `withdraw`."""
        if self.closed:
            return True
        if self._trying or self.left_s(now_s):
            return False
        self._trying = True
        return True

    def succeed(self) -> None:
        """Records an answer to any request."""
        self._failures, self._until_s, self._trying = 0, -inf, False

    def fail(self, now_s: float, *, tried: bool, pause_s: float | None = None) -> bool:
        """Records a failure; `tried` if by the trying request, `pause_s` for how long the upstream
        asks to be left alone. Returns True if this opened a closed breaker."""
        was_closed = self.closed
        self._failures += 1
        if self._failures < self._most if was_closed else not tried:
            return False  # or it began before this opened, and says nothing new
        self._trying = False
        open_s = self._open_s if pause_s is None else pause_s
        self._until_s = now_s + min(max(open_s, _LEAST_OPEN_S), MOST_OPEN_S)
        return was_closed

    def withdraw(self) -> None:
        """Releases the try of a request that ended for a reason of ours."""
        self._trying = False
