"""Listener for calls whose clients left, on a thread of its own: it hears of them during a step."""

import threading
from collections.abc import Callable, Sequence

from workers.device.call_puller import CallPuller

_WAIT_S = 5.0  # in Redis
_AWAY_S = 0.05  # between tries while Redis is away


class DroppedCalls:
    """Tells of calls that were dropped after this worker took them. on_dropped: gets their ids."""

    def __init__(
        self, puller: CallPuller, name: str, on_dropped: Callable[[Sequence[str]], None]
    ) -> None:
        self._puller, self._on_dropped = puller, on_dropped
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"dropped-{name}", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        self._puller.notify(self._puller.worker)
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            dropped = self._puller.wait_for_dropped(_WAIT_S)
            if dropped is None:
                self._stopping.wait(_AWAY_S)
            elif dropped:
                self._on_dropped(dropped)
