"""Requests to the apis that are in service, as a load balancer sends them."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import httpx

from jobs import clock
from tests.support.children import answers
from tests.support.wait import PATIENCE_S, Deadline, eventually, pause

_REFUSALS = {429, 503}
_ASK_EVERY_S = 0.1
_CONNECT_AGAIN_S = 0.05


class Balancer:
    """Sends a request to an api that is ready, or to any in service while none is.

    Requests that nobody listens to, or that are refused as documented, are sent again; any other
    failure is the caller's.
    """

    def __init__(self) -> None:
        self.refused = 0
        self.unready_s = 0.0  #: time in which no api was ready
        self._turns = count()
        self._changed = threading.Condition()
        self._in_hand = Counter[str]()
        self._ready: dict[str, bool] = {}  #: by address, of those in service
        self._http = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0), timeout=300)

    def enter(self, url: str) -> None:
        """Takes an api into service."""
        ready = answers(url)
        with self._changed:
            self._ready[url] = ready

    def leave(self, url: str) -> None:
        """Takes an api out of service; returns once it has answered what was sent to it."""
        with self._changed:
            del self._ready[url]
        eventually(lambda: not self._in_hand[url])

    def watch(self, closing: threading.Event) -> None:
        """Asks who is ready until it is closing."""
        asked_s = clock.monotonic()
        while not closing.wait(_ASK_EVERY_S):
            found = {url: answers(url) for url in list(self._ready)}
            with self._changed:
                self._ready |= {url: ready for url, ready in found.items() if url in self._ready}
            now_s = clock.monotonic()
            self.unready_s += 0 if any(found.values()) else now_s - asked_s
            asked_s = now_s

    def send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Returns an answer that is no refusal."""
        deadline = Deadline(PATIENCE_S)
        while True:
            deadline.check(f"an answer to {method} {path}")
            with self._an_api() as url:
                try:
                    answer = self._http.request(method, url + path, **request)
                except httpx.ConnectError:
                    pause(_CONNECT_AGAIN_S)
                    continue
            if answer.status_code not in _REFUSALS:
                return answer
            assert "Retry-After" in answer.headers, answer.text
            self.refused += 1
            pause(float(answer.headers["Retry-After"]))

    @contextmanager
    def _an_api(self) -> Iterator[str]:
        with self._changed:
            ready = [url for url, is_ready in self._ready.items() if is_ready] or [*self._ready]
            url = ready[next(self._turns) % len(ready)]
            self._in_hand[url] += 1
        try:
            yield url
        finally:
            with self._changed:
                self._in_hand[url] -= 1
