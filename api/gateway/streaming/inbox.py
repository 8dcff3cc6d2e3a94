"""Deltas of one call that its client has not got yet: bounded, in order, with deadlines."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from jobs import clock
from jobs.calls.messages import Delta
from jobs.errors import DeadlinePassed, MillraceError, SlowReader, StreamBroken
from jobs.telemetry.token_times import TokenTimes

MOST_WAITING = 4096  # deltas
SLOW_READER_S = 30.0  # for which deltas may wait for their client

EndCall = Callable[[MillraceError], None]
"""Ends the call with an error, which withdraws it from its worker."""


@dataclass(frozen=True, slots=True)
class StreamDeadlines:
    """Longest silences of a stream; its total time is that of the call."""

    first_token_ms: int = 60_000
    idle_ms: int = 30_000  #: between two deltas, after the first


class DeltaInbox:
    """Deltas of one call, from `put` on the event loop to one reader."""

    def __init__(self, deadlines: StreamDeadlines | None, slow_reader_s: float) -> None:
        """deadlines: None for a call whose output comes in one piece."""
        self._deadlines, self._slow_reader_s = deadlines, slow_reader_s
        self._deltas: list[Delta] = []
        self._received = 0
        self._restored = 0  # of those: by `restore`, while some may come once more
        self._held: list[Delta] | None = None  # deltas that came while it waits for `restore`
        self._delayed: Callable[[], None] | None = None  # until `restore`
        self._on_unread: Callable[[], None] | None = None
        self.token_times = TokenTimes()  #: at which deltas came
        self._oldest_s = 0.0  # arrival of the oldest delta that waits
        self._last_s = clock.monotonic()  # arrival of the latest delta, or the start
        self._loading_s: Callable[[], float] = lambda: -inf
        self._end: EndCall | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reader: asyncio.Future[None] | None = None

    def start(self, end: EndCall, loading_s: Callable[[], float] | None = None) -> None:
        """Watches the deadlines; `end` is called at most once, when the stream can't go on.

        loading_s: returns the latest time at which a worker loaded the model, on the process's
        clock: silence counts from then. None: as before."""
        self._end = end
        self._loading_s = loading_s or self._loading_s
        if self._deadlines:
            self._watch(self._deadlines)

    def stop(self) -> None:
        """Ends the watch."""
        self._end = None
        if self._timer:
            self._timer.cancel()

    @property
    def received(self) -> int:
        """Number of deltas so far."""
        return self._received

    def outlive_reader(self, on_unread: Callable[[], None]) -> None:
        """Calls `on_unread` where the client reads too slowly, in place of the call's end."""
        self._on_unread = on_unread

    def hold(self) -> None:
        """Keeps deltas that come back until `restore`."""
        self._held = []

    @property
    def is_held(self) -> bool:
        """True from `hold` to `restore`."""
        return self._held is not None

    def restore(self, deltas: Sequence[Delta]) -> None:
        """Adds what it has not got of the deltas so far, then what came since `hold`."""
        more = deltas[self._received :]
        self._deltas += more
        self._received = self._restored = max(self._received, len(deltas))
        self._oldest_s = self._last_s = clock.monotonic()
        if more:
            self.token_times.add(self._last_s)
        held, self._held = self._held or [], None
        for delta in held:
            self.put(delta)
        if self._deltas or not self._received:  # one that has begun says nothing without a delta
            self.wake()
        delayed, self._delayed = self._delayed, None
        if delayed:
            delayed()

    def delay(self, end: Callable[[], None]) -> bool:
        """Delays the end of the call until `restore`; returns False where none is awaited."""
        if self._held is None:
            return False
        self._delayed = end
        return True

    def put(self, delta: Delta) -> None:
        """Adds a delta; ends the call where one is missing before it, and where its client reads
        too slowly."""
        now_s = clock.monotonic()
        if self._held is not None:
            self._held.append(delta)
            return
        if delta.number < self._restored:  # it was on its way
            return
        if delta.number != self._received:
            self._fail(_gap(self._received, delta.number))
            return
        self._restored = 0
        waited_s = now_s - self._oldest_s if self._deltas else 0.0
        if len(self._deltas) >= MOST_WAITING or waited_s > self._slow_reader_s:
            if not self._on_unread:
                count = len(self._deltas)
                self._fail(SlowReader(f"{count} parts waited {waited_s:.0f} s for their reader"))
                return
            self._on_unread()
        if not self._deltas:
            self._oldest_s = now_s
        self._received += 1
        self._last_s = now_s
        self.token_times.add(now_s)
        self._deltas.append(delta)
        self.wake()

    def check_end(self, timing: Mapping[str, Any]) -> MillraceError | None:
        """Returns the error of a call that ended before all its deltas came."""
        sent = timing.get("deltas", self._received)
        return None if sent == self._received else _gap(self._received, sent)

    def add_gaps(self, timing: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the timing that the last worker gave, with the longest gap between deltas as they
        came here: a worker that takes a stream over doesn't know how long nobody worked on it."""
        gap_ms = round(self.token_times.longest_gap_s * 1000, 3)
        return {**timing, "longest_gap_ms": max(gap_ms, timing.get("longest_gap_ms", 0.0))}

    def take(self) -> list[Delta]:
        """Returns the deltas that came since the last time."""
        taken, self._deltas = self._deltas, []
        return taken

    async def wait(self, timeout_s: float) -> None:
        """Waits until there are deltas, `wake` is called, or the time is over."""
        if self._deltas:
            return
        loop = asyncio.get_running_loop()
        self._reader = reader = loop.create_future()
        timer = loop.call_later(timeout_s, self.wake)
        try:
            await reader
        finally:
            timer.cancel()
            self._reader = None

    def wake(self) -> None:
        """Ends the reader's wait."""
        if self._reader and not self._reader.done():
            self._reader.set_result(None)

    def _fail(self, error: MillraceError) -> None:
        if end := self._end:
            self.stop()
            end(error)

    def _watch(self, deadlines: StreamDeadlines) -> None:
        """Fails a stream that has been silent too long, else looks again when it might have."""
        limit_ms = deadlines.idle_ms if self._received else deadlines.first_token_ms
        since_s = max(self._last_s, self._loading_s())
        left_s = since_s + limit_ms / 1000 - clock.monotonic()
        if left_s <= 0:
            what = "more came" if self._received else "token came"
            self._fail(DeadlinePassed(f"no {what} within {limit_ms} ms"))
            return
        # Before the first delta the shorter of both: the limit changes when that comes.
        next_s = left_s if self._received else min(left_s, deadlines.idle_ms / 1000)
        self._timer = asyncio.get_running_loop().call_later(next_s, self._watch, deadlines)


def _gap(received: int, number: int) -> StreamBroken:
    if number < received:
        return StreamBroken(f"part {number} came once more: its worker began again")
    return StreamBroken(f"parts {received} to {number - 1} were lost on their way")
