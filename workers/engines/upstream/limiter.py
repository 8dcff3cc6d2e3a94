"""Limiter of requests to an upstream: adaptive concurrency and a breaker."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from jobs import clock
from jobs.models.engines.upstream_options import BreakerOptions, Concurrency
from jobs.telemetry.metrics import record
from workers.engines.protocol import RateLimited, Room
from workers.engines.upstream.breaker import Breaker
from workers.engines.upstream.concurrency import Limit

_log = logging.getLogger(__name__)

_TRY_S = 1.0  # retry delay for other requests while one tries

Verdict = Literal["served", "answered", "refused", "silent", "failed", "withdrawn"]
"""Result of a request, for the limiter: served; another answer; too much to do; timed out; failed;
ended by us."""


@dataclass(slots=True)
class Permit:
    """Right to one request; the holder sets verdict and pause_s."""

    began_s: float
    in_flight: int  #: requests when it began, itself included
    tries: bool  #: True if it shows whether the upstream is back
    verdict: Verdict = "withdrawn"
    pause_s: float | None = None  #: for which the upstream asks to be left alone


class Limiter:
    """Limits requests of all threads; `name` is the model's, for the log."""

    def __init__(self, name: str, concurrency: Concurrency, patience: BreakerOptions) -> None:
        self._name = name
        self._limit = Limit(concurrency.min, concurrency.start, concurrency.max)
        self._breaker = Breaker(patience.failures, patience.open_s)
        self._in_flight = 0
        self._lock = threading.Lock()

    def room(self) -> Room:
        """Returns the requests that may be in flight now."""
        with self._lock:
            if self._breaker.closed:
                return Room(self._limit.now)
            closed_s = self._closed_s(clock.monotonic())
            return Room(0, closed_s) if closed_s else Room(self._in_flight + 1)

    def _closed_s(self, now_s: float) -> float:
        return _TRY_S if self._breaker.trying else self._breaker.left_s(now_s)

    @contextmanager
    def permit(self) -> Iterator[Permit]:
        """Holds a permit during one request. Raises RateLimited while the breaker is open."""
        held = self._enter()
        try:
            yield held
        finally:
            self._leave(held)

    def _enter(self) -> Permit:
        with self._lock:
            now_s = clock.monotonic()
            tries = not self._breaker.closed
            if not self._breaker.begin(now_s):
                why = "what runs this model fails; it is left alone for now"
                raise RateLimited(why, self._closed_s(now_s))
            self._in_flight += 1
            return Permit(now_s, self._in_flight, tries)

    def _leave(self, held: Permit) -> None:
        with self._lock:
            now_s = clock.monotonic()
            self._in_flight -= 1
            opened = self._update(held, now_s)
            left_s = self._breaker.left_s(now_s)
            closed = self._breaker.closed
            back = held.tries and closed
        record.upstream(self._name, held.verdict, self._limit.now, not closed)
        if opened:
            _log.warning("%s is left alone for %g s: nothing but failures", self._name, left_s)
        elif back:
            _log.info("%s answers again", self._name)

    def _update(self, held: Permit, now_s: float) -> bool:
        """Returns True if the breaker has opened."""
        if held.verdict == "withdrawn":
            if held.tries:
                self._breaker.withdraw()
            return False
        if held.verdict in ("served", "answered"):
            self._breaker.succeed()
            if held.verdict == "served":
                self._limit.answered(now_s, held.began_s, held.in_flight)
            return False
        if held.verdict in ("refused", "silent"):
            self._limit.refused(now_s, held.began_s)
        return self._breaker.fail(now_s, tried=held.tries, pause_s=held.pause_s)
