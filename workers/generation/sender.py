"""Sender of deltas and replies, on a thread of its own: no step waits for Redis."""

import logging
import threading
from collections.abc import Callable, Sequence

from jobs.calls.messages import Delta, Reply
from workers.device.call_puller import CallPuller

_log = logging.getLogger(__name__)


class Sender:
    """Sends what steps produced: one message of deltas to each api process, then the replies.

    on_cancelled: gets the calls that were dropped, as Redis tells with the same round trip;
    on_ended: is told that calls have ended."""

    def __init__(
        self,
        puller: CallPuller,
        name: str,
        on_cancelled: Callable[[Sequence[str]], None],
        on_ended: Callable[[], None],
    ) -> None:
        self._puller, self._on_cancelled, self._on_ended = puller, on_cancelled, on_ended
        self._changed = threading.Condition()  # guards what is below
        self._deltas: dict[str, list[Delta]] = {}
        self._replies: dict[str, list[Reply]] = {}
        self._due = self._closing = False
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
            self._thread.join()

    def send(
        self, deltas: Sequence[tuple[str, Delta]], replies: Sequence[tuple[str, Reply]]
    ) -> None:
        """Sends what a step produced, each with the api process that waits for it. Steps that end
        while Redis is busy share a message. Without anything it asks for dropped calls alone."""
        with self._changed:
            for process, delta in deltas:
                self._deltas.setdefault(process, []).append(delta)
            for process, reply in replies:
                self._replies.setdefault(process, []).append(reply)
            self._due = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._due or self._closing)
                deltas, self._deltas = self._deltas, {}
                replies, self._replies = self._replies, {}
                ends, self._due = self._closing and not self._due, False
            if ends:
                return
            try:
                if cancelled := self._puller.stream(deltas):
                    self._on_cancelled(cancelled)
                if replies:
                    self._puller.end(replies)
                    self._on_ended()
            except Exception:  # the thread must go on for other calls
                _log.exception("%d replies could not be sent", sum(map(len, replies.values())))
