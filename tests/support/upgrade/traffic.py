"""Jobs, calls and streams without a pause, each checked when it has ended."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

import httpx

from jobs.states import TERMINAL
from ops.bench.load.streams.reader import ReadStream, StreamRequest, read
from tests.support.models.entries import model
from tests.support.upgrade.balancer import Balancer
from tests.support.wait import eventually

FILES = {
    "shout.py": """
import time

SAMPLES = ["warm"]


def predict(texts):
    time.sleep(0.01)
    return [text.upper() for text in texts]
"""
}
_ROOM = {"target_ttft_ms": 60_000, "target_itl_ms": 10_000, "context_tokens": 8192, "blocks": 8192}
MODELS = model("echo", "echo", target_ms=60_000)
MODELS += model("shout", "python", file="shout.py", target_ms=60_000, limits={"max_batch": 8})
MODELS += model("talk", "echo_chat", step_ms=20.0, **_ROOM)
_ITEMS = 120
_JOBS_AT_ONCE, _CALLS_AT_ONCE, _STREAMS_AT_ONCE = 2, 2, 3  # the long ones among them
_CALL_EVERY_S = 0.02  # leaves CPU to the tests beside
_SHORT, _LONG = 100, 4000  # tokens: 2 s and 80 s
_PATIENT = {"first_token_ms": 300_000, "idle_ms": 120_000}
_MOST_TRIES = 1200
_MOST_THREADS = 16


class Traffic:
    """Clients of a platform.

    jobs: ids of those acknowledged; counts: of jobs, items, calls and streams that ended as they
    should.
    """

    def __init__(self, balancer: Balancer) -> None:
        self.jobs: set[str] = set()
        self.counts = Counter[str]()
        self.failures: list[str] = []
        self.urls: list[str] = []  #: addresses of all apis, the oldest first; streams follow it
        self._balancer, self._numbers = balancer, count()
        self._closing, self._pool = threading.Event(), ThreadPoolExecutor(_MOST_THREADS)
        self._long: list[Future[ReadStream]] = []

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Lets it flow until the block ends; then what is open goes on to its end."""
        clients: list[Callable[[], None]] = [partial(self._balancer.watch, self._closing)]
        clients += [partial(self._repeat, self._work)] * _JOBS_AT_ONCE
        clients += [partial(self._repeat, self._call)] * _CALLS_AT_ONCE
        clients += [partial(self._repeat, partial(self._stream, _SHORT))]
        running = [self._pool.submit(client) for client in clients]
        try:
            yield
        finally:
            self._closing.set()
            self._pool.shutdown()
        for one in running:
            one.result()
        assert all(stream.result().connections > 1 for stream in self._long)

    def goes_on(self) -> None:
        """Returns once a job, a call and a stream that begin later have ended as they should."""
        before = Counter(self.counts)
        eventually(lambda: self.failures or self._beyond(before))
        assert not self.failures, self.failures

    def _beyond(self, before: Counter[str]) -> bool:
        # One more than can be open at once: the last of them began after the look.
        open_ = {"jobs": _JOBS_AT_ONCE, "calls": _CALLS_AT_ONCE, "streams": _STREAMS_AT_ONCE}
        return all(self.counts[what] > before[what] + most for what, most in open_.items())

    def _submit(self, texts: list[str]) -> str:
        """Submits a job; returns its id."""
        key = {"Idempotency-Key": f'"job-{next(self._numbers)}"'}
        order = {"model": "shout", "items": texts}
        answer = self._balancer.send("POST", "/jobs", json=order, headers=key)
        assert answer.status_code == 202, answer.text
        job = str(answer.json()["id"])
        self.jobs.add(job)
        return job

    def hold(self) -> tuple[str, list[str]]:
        """Submits a job, and pauses it before it has ended; returns its id and items."""
        texts = [f"held {n}" for n in range(_ITEMS)]

        def held() -> str:
            job = self._submit(texts)
            pause = self._balancer.send("POST", f"/jobs/{job}/pause")
            return job if pause.is_success else ""

        return eventually(held), texts

    def let_go(self, job: str, texts: list[str]) -> None:
        """Resumes a job that was held, and checks its results."""
        assert self._balancer.send("POST", f"/jobs/{job}/resume").is_success
        self._finish(job, texts)

    def _state(self, job: str) -> str:
        return str(self._balancer.send("GET", f"/jobs/{job}").json()["state"])

    def open_stream(self) -> None:
        """Begins a long stream at the first api, which will be left; returns once it is open."""
        opened = threading.Event()
        self._long.append(self._pool.submit(self._stream, _LONG, opened))
        eventually(lambda: opened.is_set() or self._long[-1].done())

    def _repeat(self, once: Callable[[], object]) -> None:
        while not self._closing.is_set():
            try:
                once()
            except Exception as error:
                self.failures.append(repr(error))
                self._closing.wait(1)

    def _work(self) -> None:
        number = next(self._numbers)
        texts = [f"job {number} item {n}" for n in range(_ITEMS)]
        self._finish(self._submit(texts), texts)

    def _finish(self, job: str, texts: list[str]) -> None:
        """Checks that a job completes, with each result once, in order, and right."""
        state = eventually(lambda: (now := self._state(job)) in TERMINAL and now, every_s=0.1)
        assert state == "completed", f"{job} is {state}"
        lines = self._balancer.send("GET", f"/jobs/{job}/results").text.splitlines()
        found = [json.loads(line) for line in lines]
        shown = [(result["seq"], result["outcome"], result["output"]) for result in found]
        expected = [(seq, "succeeded", text.upper()) for seq, text in enumerate(texts)]
        assert shown == expected, f"results of {job}: {shown}"
        self.counts["jobs"] += 1
        self.counts["items"] += len(texts)

    def _call(self) -> None:
        text = f"call {next(self._numbers)}"
        body = {"model": "echo", "input": text, "timeout_ms": 60_000}
        answer = self._balancer.send("POST", "/infer", json=body)
        assert (answer.status_code, answer.json().get("output")) == (200, text), answer.text
        self.counts["calls"] += 1
        self._closing.wait(_CALL_EVERY_S)

    def _stream(self, tokens: int, opened: threading.Event | None = None) -> ReadStream:
        number = next(self._numbers)
        text = " ".join(f"s{number}-{n}" for n in range(tokens))
        prompt = {"prompt": text, "max_tokens": tokens}
        body = {"model": "talk", "input": prompt, "stream": True, **_PATIENT}
        stream = asyncio.run(_read(self.urls, StreamRequest("talk", body), opened))
        usage = stream.usage.get("completion_tokens")
        whole = (stream.text.get(0), usage, stream.lost, stream.repeated) == (text, tokens, 0, 0)
        assert stream.ended, f"stream {stream.call_id}: {stream.error}"
        assert whole, f"stream {stream.call_id}: {stream}"
        self.counts["streams"] += 1
        return stream


async def _read(
    urls: list[str], request: StreamRequest, opened: threading.Event | None
) -> ReadStream:
    first = urls[0]

    async def note(response: httpx.Response) -> None:
        if opened and response.is_success and str(response.url).startswith(first):
            opened.set()

    hooks: dict[str, Any] = {"response": [note]}
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=300, limits=limits, event_hooks=hooks) as http:
        return await read(http, urls, request, _MOST_TRIES)
