"""Who hears that a call came: one idle replica, in turn."""

from collections import deque
from typing import Protocol


class Listener(Protocol):
    idle: bool

    def hear(self) -> None: ...


class Bell:
    """A list in Redis with at most one token, and replicas that wait for it in the order they
    came. One that is busy when it gets the token puts it back."""

    def __init__(self) -> None:
        self._listening: deque[Listener] = deque()
        self._token = False

    def ring(self) -> None:
        while self._listening:
            listener = self._listening.popleft()
            if listener.idle:
                listener.hear()
                return
        self._token = True

    def listen(self, listener: Listener) -> None:
        """A replica is idle from now on."""
        if self._token:
            self._token = False
            listener.hear()
        elif listener not in self._listening:
            self._listening.append(listener)
