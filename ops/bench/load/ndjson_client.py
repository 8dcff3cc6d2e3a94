"""A client that costs little: blocks of NDJSON up, results down, over one connection."""

import http.client
import json
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from jobs import clock
from ops.bench.harness.platform import BenchError

_POLL_S = 0.1
_TIMEOUT_S = 600.0
_STALLED_S = 60.0  # without a new result
_BLOCK_BYTES = 1 << 16
_BLOCK_LINES = 1000


class Stream:
    """Jobs and calls of one client; not thread-safe. poll_s: between looks for more results. key:
    its API key; empty: it comes without."""

    def __init__(self, url: str, poll_s: float = _POLL_S, key: str = "") -> None:
        address = urlsplit(url)
        self._poll_s = poll_s
        self._who = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = http.client.HTTPConnection(
            str(address.hostname), address.port, timeout=_TIMEOUT_S
        )

    def post(self, model: str, texts: Iterable[str]) -> str:
        """Streams texts up as one job; returns its id."""
        headers = {"Content-Type": "application/x-ndjson", **self._who}
        path = f"/jobs?model={model}"
        self._http.request("POST", path, _blocks(texts), headers, encode_chunked=True)
        job: str = self._json(202)["id"]
        return job

    def results(self, job: str) -> Iterator[bytes]:
        """Result lines in order, as they appear, until there are no more to come."""
        after, complete, moved_s = -1, False, clock.monotonic()
        while not complete:
            self._http.request("GET", f"/jobs/{job}/results?after={after}", headers=self._who)
            response = self._answer(200)
            yield from _lines(response)
            before, after = after, int(response.headers["X-Next-After"])
            complete = response.headers["X-Complete"] == "true"
            if after > before:
                moved_s = clock.monotonic()
            elif clock.monotonic() > moved_s + _STALLED_S:
                raise BenchError(f"{job} has had no new result for {_STALLED_S:g} s")
            if not complete:
                clock.sleep(self._poll_s)

    def job(self, job: str) -> Any:
        """The job object."""
        self._http.request("GET", f"/jobs/{job}", headers=self._who)
        return self._json(200)

    def cancel(self, job: str) -> None:
        self._http.request("POST", f"/jobs/{job}/cancel", headers=self._who)
        self._json(200)

    def call(self, model: str, value: Any) -> Any:
        """The output of one call."""
        body = json.dumps({"model": model, "input": value})
        headers = {"Content-Type": "application/json", **self._who}
        self._http.request("POST", "/infer", body, headers)
        return self._json(200)["output"]

    def close(self) -> None:
        self._http.close()

    def _json(self, status: int) -> Any:
        return json.loads(self._answer(status).read())

    def _answer(self, status: int) -> http.client.HTTPResponse:
        response = self._http.getresponse()
        if response.status != status:
            raise BenchError(f"the api answered {response.status}: {response.read()!r}")
        return response


def _blocks(texts: Iterable[str]) -> Iterator[bytes]:
    """NDJSON, so many lines a block that a block costs next to nothing."""
    block: list[str] = []
    for text in texts:
        block.append(json.dumps(text))
        if len(block) == _BLOCK_LINES:
            yield "\n".join([*block, ""]).encode()
            block.clear()
    if block:
        yield "\n".join([*block, ""]).encode()


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    rest = b""
    while block := response.read1(_BLOCK_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
    if rest:
        raise BenchError(f"the results broke off in the middle of a line: {rest!r}")
