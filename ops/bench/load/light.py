"""Tenant whose requests are small: latencies of each kind, over a connection of its own."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from jobs import clock
from ops.bench.harness.errors import BenchError
from ops.bench.harness.platform import say

_POLL_S = 0.005
_JOB_WITHIN_S = 60.0

#: Latencies in ms, by kind of request.
Latencies = Mapping[str, Sequence[float]]


class _Client:
    """Keep-alive connection of the tenant."""

    def __init__(self, url: str, key: str) -> None:
        address = urlsplit(url)
        self._http = HTTPConnection(str(address.hostname), address.port, timeout=_JOB_WITHIN_S)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        """Response's object. Raises BenchError for another status."""
        data = None if body is None else json.dumps(body)
        self._http.request(method, path, data, self._headers)
        response = self._http.getresponse()
        content = response.read()
        if response.status != status:
            raise BenchError(f"{method} {path} was answered {response.status}: {content!r}")
        return json.loads(content)

    def close(self) -> None:
        """Closes the connection."""
        self._http.close()

    def live(self) -> None:
        """Asks whether the api lives."""
        self.ask("GET", "/livez")

    def call(self) -> None:
        """Makes a call."""
        self.ask("POST", "/infer", {"model": "echo", "input": "light"})

    def list_jobs(self) -> None:
        """Reads a page of jobs."""
        self.ask("GET", "/jobs?limit=20")

    def job(self) -> None:
        """Submits a job of one item, and waits for its end."""
        job = self.ask("POST", "/jobs", {"model": "echo", "items": ["light"]}, 202)["id"]
        deadline_s = clock.monotonic() + _JOB_WITHIN_S
        while self.ask("GET", f"/jobs/{job}")["state"] != "completed":
            if clock.monotonic() > deadline_s:
                raise BenchError(f"{job} has not ended within {_JOB_WITHIN_S:g} s")
            clock.sleep(_POLL_S)


#: Requests, and the seconds between two of them.
KINDS: Mapping[str, tuple[Callable[[_Client], None], float]] = {
    "livez": (_Client.live, 0.05),
    "call": (_Client.call, 0.05),
    "list": (_Client.list_jobs, 0.1),
    "job": (_Client.job, 0.25),
}


def probe(url: str, key: str, seconds: float) -> Latencies:
    """Measures requests of each kind for so long.

    A request's latency counts from the time it was due: a stall counts for all that it held up.
    Raises BenchError for a response that isn't what was asked for.
    """
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    errors: list[BaseException] = []

    def repeat(kind: str) -> None:
        """Sends requests of a kind at their due times."""
        ask, every_s = KINDS[kind]
        try:
            with closing(_Client(url, key)) as client:
                since_s = clock.monotonic()
                for n in range(int(seconds / every_s)):
                    due_s = since_s + n * every_s
                    clock.sleep(max(0.0, due_s - clock.monotonic()))
                    ask(client)
                    found[kind].append((clock.monotonic() - due_s) * 1000)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(kind,)) for kind in KINDS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    say("; ".join(f"{kind} p95 {np.percentile(ms, 95):.1f}, max {max(ms):.0f} ms"
                  for kind, ms in found.items()))  # fmt: skip
    return found
