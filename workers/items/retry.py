"""Retries while the database or the blob store is away."""

from collections.abc import Callable
from typing import TypeVar

from jobs import clock

T = TypeVar("T")
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


def retry_while_away(
    act: Callable[[], T],
    errors: type[Exception] | tuple[type[Exception], ...],
    give_up_s: float,
    warn: Callable[[Exception], None],
    stopped: Callable[[], bool] = lambda: False,
) -> T | None:
    """Calls `act` until it raises none of `errors`, with exponential backoff, and returns its
    result. Returns None once it is stopped, or failed after `give_up_s` (monotonic)."""
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return act()
        except errors as error:
            warn(error)
            if stopped() or clock.monotonic() > give_up_s:
                return None
        clock.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
