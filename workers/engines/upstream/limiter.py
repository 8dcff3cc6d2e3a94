"""Who may ask an upstream now: a limit of how many, and a breaker. For any thread."""

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

_TRY_S = 1.0
"""While one request tries, others are told to come again so much later."""

Verdict = Literal["served", "answered", "refused", "silent", "failed", "withdrawn"]
"""What a request says of its upstream: it served it; it answered, no matter what; it has too much
to do; it took too long; it is broken or away; nothing, since we ended it ourselves."""


@dataclass(slots=True)
class Pass:
    """The right to one request. tries: it shows whether the upstream is back. Whoever holds it
    says how it ended: verdict, and asked_s, for how long the upstream asked to be left alone."""

    began_s: float
    beside: int
    tries: bool
    verdict: Verdict = "withdrawn"
    asked_s: float | None = None


class Limiter:
    """name: of the model, for the log."""

    def __init__(self, name: str, concurrency: Concurrency, patience: BreakerOptions) -> None:
        self._name = name
        self._limit = Limit(concurrency.min, concurrency.start, concurrency.max)
        self._breaker = Breaker(patience.failures, patience.open_s)
        self._in_flight = 0
        self._lock = threading.Lock()

    def room(self) -> Room:
        with self._lock:
            if self._breaker.closed:
                return Room(self._limit.now)
            closed_s = self._closed_s(clock.monotonic())
            return Room(0, closed_s) if closed_s else Room(self._in_flight + 1)

    def _closed_s(self, now_s: float) -> float:
        return _TRY_S if self._breaker.trying else self._breaker.left_s(now_s)

    @contextmanager
    def passing(self) -> Iterator[Pass]:
        """Around one request. Raises RateLimited while the upstream is left alone."""
        one = self._enter()
        try:
            yield one
        finally:
            self._leave(one)

    def _enter(self) -> Pass:
        with self._lock:
            now_s = clock.monotonic()
            tries = not self._breaker.closed
            if not self._breaker.begin(now_s):
                why = "what runs this model fails; it is left alone for now"
                raise RateLimited(why, self._closed_s(now_s))
            self._in_flight += 1
            return Pass(now_s, self._in_flight, tries)

    def _leave(self, one: Pass) -> None:
        with self._lock:
            now_s = clock.monotonic()
            self._in_flight -= 1
            opened = self._note(one, now_s)
            left_s = self._breaker.left_s(now_s)
            closed = self._breaker.closed
            back = one.tries and closed
        record.upstream(self._name, one.verdict, self._limit.now, closed)
        if opened:
            _log.warning("%s is left alone for %g s: nothing but failures", self._name, left_s)
        elif back:
            _log.info("%s answers again", self._name)

    def _note(self, one: Pass, now_s: float) -> bool:
        """Whether the breaker has opened."""
        if one.verdict == "withdrawn":
            if one.tries:
                self._breaker.withdraw()
            return False
        if one.verdict in ("served", "answered"):
            self._breaker.succeed()
            if one.verdict == "served":
                self._limit.answered(now_s, one.began_s, one.beside)
            return False
        if one.verdict in ("refused", "silent"):
            self._limit.refused(now_s, one.began_s)
        return self._breaker.fail(now_s, tried=one.tries, asked_s=one.asked_s)
