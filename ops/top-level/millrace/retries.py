"""Retries: which errors may pass, how long to wait for that, and the pace of polls."""

from millrace import clock
from millrace.clock import Deadline
from millrace.errors import APIConnectionError, APIError, APIStatusError

MAX_RETRIES = 5  #: of a request
OUTAGE_S = 600.0  #: longest outage of the api that outlasts those who follow a job
_FIRST_S, _LONGEST_S = 0.5, 8.0
_SPREAD = 0.25  # random part of a pause
_UNTAKEN = frozenset({429, 503})  # statuses of requests that have changed nothing


class Retries:
    """Failures in a row of one request, or of one thing that is followed.

    most: retries in a row; patience_s: time for which there may be more. repeatable: False for a
    request that must not run twice: it is sent again only where it wasn't taken.
    """

    def __init__(
        self, deadline: Deadline, most: int, *, patience_s: float = 0.0, repeatable: bool = True
    ) -> None:
        self._deadline, self._most = deadline, most
        self._patience_s, self._repeatable = patience_s, repeatable
        self.reset()

    def reset(self) -> None:
        """Begins anew: something has come."""
        self._failures, self._since_s = 0, clock.monotonic()

    def pause_s(self, error: APIError) -> float:
        """Returns the seconds to wait before the next try; raises the error where there is none."""
        self._failures += 1
        out_of_patience = clock.monotonic() - self._since_s >= self._patience_s
        if not self._may_pass(error) or (self._failures > self._most and out_of_patience):
            raise error
        pause_s = _pause_s(error, self._failures)
        if self._deadline.left_s(pause_s) < pause_s:
            self._deadline.end()
            raise error
        return pause_s

    def _may_pass(self, error: APIError) -> bool:
        return may_pass(error) and (self._repeatable or _was_not_taken(error))


def may_pass(error: APIError) -> bool:
    """Returns True if the same request may succeed later."""
    if isinstance(error, APIStatusError):
        return error.retryable
    return isinstance(error, APIConnectionError)


def _was_not_taken(error: APIError) -> bool:
    if isinstance(error, APIStatusError):
        return error.status in _UNTAKEN
    return isinstance(error, APIConnectionError) and error.refused


def _pause_s(error: APIError, failures: int) -> float:
    """Returns a time that doubles with each failure, or the Retry-After of the api."""
    pause_s: float | None = None
    if isinstance(error, APIStatusError):
        pause_s = error.retry_after_s
    if pause_s is None:
        pause_s = min(_FIRST_S * 2 ** min(failures - 1, 10), _LONGEST_S)
        return pause_s - clock.jitter(_SPREAD * pause_s)
    return pause_s + clock.jitter(_SPREAD * min(pause_s, 1.0))


class Polls:
    """Pace of polls: slower where nothing is new, faster where something is."""

    _LEAST_S, _MOST_S = 0.05, 2.0
    _SLOWER, _FASTER = 1.5, 0.5

    def __init__(self) -> None:
        self._pause_s = self._LEAST_S

    def pause_s(self, found: bool) -> float:
        """Returns the seconds to wait before the next poll; found: the last one brought news."""
        next_s = self._pause_s * (self._FASTER if found else self._SLOWER)
        self._pause_s = min(max(next_s, self._LEAST_S), self._MOST_S)
        return self._pause_s - clock.jitter(_SPREAD * self._pause_s)
