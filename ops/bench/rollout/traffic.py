"""Calls at a steady rate to several apis, by the bare name of a model: what each was answered."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from random import Random
from urllib.parse import urlsplit

from jobs import clock

_AT_ONCE = 48  # calls that wait for their answers; one more is sent late
_TIMEOUT_S = 30.0
_CHARACTERS = (40, 120)


@dataclass(frozen=True, slots=True)
class Answer:
    """One call."""

    key: str  #: its Idempotency-Key; "": none
    sent_s: float  #: since 1970
    ended_s: float
    status: int  #: 0: no answer
    version: str  #: that the answer names
    output: str  #: of an answer 200, else the body

    @property
    def launch(self) -> tuple[str, str]:
        """Version that ran, as it says itself, and its launch."""
        version, _, launch = self.output.partition(" ")
        return version, launch


class Traffic:
    """Calls that are being made."""

    def __init__(self, urls: Sequence[str], model: str, per_s: float, *, keyed: bool) -> None:
        self.answers: list[Answer] = []
        self._model, self._keyed = model, keyed
        self._stopped, self._turn = threading.Event(), threading.Lock()
        self._due = self._due_times(per_s)
        self._threads = [
            threading.Thread(target=self._run, args=(urls[n % len(urls)],), daemon=True)
            for n in range(_AT_ONCE)
        ]

    def start(self) -> None:
        """Begins."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Returns once all calls have been answered."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _due_times(self, per_s: float) -> Iterator[tuple[float, str]]:
        """Yields the time of each call, and its text."""
        random, due_s, n = Random(3), clock.monotonic(), 0
        while True:
            due_s += random.expovariate(per_s)
            text = f"{n} " + "x" * random.randint(*_CHARACTERS)
            yield due_s, text
            n += 1

    def _run(self, url: str) -> None:
        address = urlsplit(url)
        api = HTTPConnection(str(address.hostname), address.port, timeout=_TIMEOUT_S)
        while not self._stopped.is_set():
            with self._turn:
                due_s, text = next(self._due)
            clock.sleep(max(0.0, due_s - clock.monotonic()))
            if not self._stopped.is_set():
                self.answers.append(self._call(api, text))
        api.close()

    def _call(self, api: HTTPConnection, text: str) -> Answer:
        headers = {"Content-Type": "application/json"}
        key = text.partition(" ")[0] if self._keyed else ""
        if key:
            headers["Idempotency-Key"] = key
        sent_s, status, version, output = clock.now().timestamp(), 0, "", ""
        try:
            api.request(
                "POST", "/infer", json.dumps({"model": self._model, "input": text}), headers
            )
            response = api.getresponse()
            output, status = response.read().decode(), response.status
            version = response.headers.get("X-Millrace-Model", "").partition("@")[2]
        except (OSError, HTTPException) as error:
            output = repr(error)
            api.close()
        if status == 200:
            output = json.loads(output)["output"]
        return Answer(key, sent_s, clock.now().timestamp(), status, version, output)


@contextmanager
def traffic(
    urls: Sequence[str], model: str, per_s: float, *, keyed: bool = False
) -> Iterator[Traffic]:
    """Makes so many calls a second until it is left, and waits for their answers then. keyed: each
    has an Idempotency-Key, by which rollouts choose its cohort."""
    calls = Traffic(urls, model, per_s, keyed=keyed)
    calls.start()
    try:
        yield calls
    finally:
        calls.stop()
