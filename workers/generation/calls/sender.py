"""Sender of deltas and replies, on a thread of its own: no step waits for Redis.

Calls that are left to another worker are put back here, once all that they emitted is logged.
"""

import logging
import threading
from collections.abc import Callable, Collection, Sequence

from jobs.calls.messages import Call, Reply
from jobs.calls.streams.log import Progress
from workers.device.call_puller import CallPuller

_log = logging.getLogger(__name__)
_AT_ONCE = 1000  # deltas of one script
_PAUSE_S = 0.05  # between tries while Redis is away
_CLOSED_S = 5.0  # for which a host that stops tries


class Sender:
    """Logs and sends what steps produced: all their deltas in one script, then the replies. While
    Redis is away both wait: nothing is sent that isn't logged, and in order.

    on_ended: gets calls that have ended, with their replies; on_lost: those that this worker has no
    more."""

    def __init__(
        self,
        puller: CallPuller,
        name: str,
        on_ended: Callable[[Sequence[tuple[Call, Reply]]], None],
        on_lost: Callable[[Sequence[Call]], None],
    ) -> None:
        self._puller, self._on_ended, self._on_lost = puller, on_ended, on_lost
        self._changed = threading.Condition()  # guards what is below
        self._progress: list[Progress] = []
        self._ends: list[tuple[Call, Reply]] = []
        self._takes = set[int]()  # to be put back
        self._due = self._closing = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sender-{name}", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Sends what is left, and ends the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(_CLOSED_S)
            self._closed.set()
            self._thread.join()

    def send(self, progress: Sequence[Progress], ends: Sequence[tuple[Call, Reply]]) -> None:
        """Sends what a step produced. Steps that end while Redis is busy share a script."""
        with self._changed:
            self._progress += progress
            self._ends += ends
            self._due = True
            self._changed.notify()

    def put_back(self, takes: Collection[int]) -> None:
        """Puts back the calls of these takes, after all that was sent before."""
        if takes:
            with self._changed:
                self._takes.update(takes)
                self._due = True
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._due or self._closing)
                progress, self._progress = self._progress, []
                ends, self._ends = self._ends, []
                takes, self._takes = self._takes, set()
                stops, self._due = self._closing and not self._due, False
            if stops:
                return
            try:
                self._log(progress)
                if ends:
                    self._puller.end(ends)
                    self._on_ended(ends)
                self._put_back(takes)
            except Exception:  # the thread must go on for other calls
                _log.exception("%d replies could not be sent", len(ends))

    def _put_back(self, takes: Collection[int]) -> None:
        for take in takes:
            while not self._puller.put_back(take) and not self._closed.wait(_PAUSE_S):
                pass

    def _log(self, progress: Sequence[Progress]) -> None:
        """Logs and sends deltas, again and again until Redis has them."""
        for since in range(0, len(progress), _AT_ONCE):
            while (lost := self._puller.stream(progress[since : since + _AT_ONCE])) is None:
                if self._closed.wait(_PAUSE_S):
                    return
            if lost:
                self._on_lost(lost)
