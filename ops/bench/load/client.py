"""HTTP client of benchmarks that costs little: jobs as NDJSON and calls over one connection."""

import http.client
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import orjson

from jobs import clock
from ops.bench.harness.errors import BenchError

_TIMEOUT_S = 600.0
_IDLE_S = 2.0  # the api may close a connection that was idle for longer
_STALLED_S = 60.0  # without a new result
_BLOCK_BYTES, _PIECE_BYTES = 1 << 16, 1 << 20
_BLOCK_LINES = 1000
JSON: Mapping[str, str] = {"Content-Type": "application/json"}
NDJSON: Mapping[str, str] = {"Content-Type": "application/x-ndjson"}


@dataclass(frozen=True, slots=True)
class CompletedJob:
    """Job whose results were read to the end."""

    id: str
    seconds: float  #: from the first byte posted to the last result read
    outputs: list[Any]  #: empty where they were compared while they arrived


class Client:
    """Keep-alive connection to an api; not thread-safe.

    poll_s: wait between reads of further results. key: API key; empty: none.
    """

    def __init__(self, url: str, poll_s: float = 0.1, key: str = "") -> None:
        address = urlsplit(url)
        self._poll_s, self._used_s = poll_s, 0.0
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = http.client.HTTPConnection(
            str(address.hostname), address.port, timeout=_TIMEOUT_S
        )

    def post(self, model: str, texts: Iterable[Any]) -> str:
        """Streams texts, or objects with an `input`, up as one job; returns its id."""
        blocks = ndjson_blocks(texts, _BLOCK_LINES)
        response = self._request("POST", f"/jobs?model={model}", blocks, NDJSON, status=202)
        return str(json.loads(response.read())["id"])

    def results(self, job: str) -> Iterator[bytes]:
        """Yields result lines in order, as they appear, until all are read."""
        after, complete, moved_s = -1, False, clock.monotonic()
        while not complete:
            response = self._request("GET", f"/jobs/{job}/results?after={after}")
            yield from lines_of(iter(partial(response.read1, _BLOCK_BYTES), b""))
            before, after = after, int(response.headers["X-Next-After"])
            complete = response.headers["X-Complete"] == "true"
            if after > before:
                moved_s = clock.monotonic()
            elif clock.monotonic() > moved_s + _STALLED_S:
                raise BenchError(f"{job} has had no new result for {_STALLED_S:g} s")
            if not complete:
                clock.sleep(self._poll_s)

    def run_job(
        self, model: str, texts: Sequence[Any], outputs: Sequence[Any] | None = None
    ) -> CompletedJob:
        """Posts a job and reads its results. Raises BenchError where one is missing or wrong.

        outputs: expected ones, compared while results arrive; None: parsed afterwards.
        """
        since_s = clock.monotonic()
        job = self.post(model, texts)
        if outputs is not None:
            self.check_results(job, outputs)
            return CompletedJob(job, clock.monotonic() - since_s, [])
        lines = list(self.results(job))
        took_s = clock.monotonic() - since_s
        results = [orjson.loads(line) for line in lines]
        found = [result["output"] for result in results]
        if [result["seq"] for result in results] != list(range(len(texts))) or None in found:
            raise BenchError(f"{len(results)} results of {len(texts)} items, or wrong ones")
        return CompletedJob(job, took_s, found)

    def check_results(self, job: str, outputs: Sequence[Any]) -> None:
        """Reads results as they appear. Raises BenchError where one differs."""
        seen = 0
        for line in self.results(job):
            result = orjson.loads(line)
            if result["seq"] != seen or result["output"] != outputs[seen]:
                raise BenchError(f"in place of the result of item {seen}: {result}")
            seen += 1
        if seen != len(outputs):
            raise BenchError(f"{seen} results of {len(outputs):,} items")

    def job(self, job: str) -> Any:
        """Job object."""
        return self.get(f"/jobs/{job}")

    def get(self, path: str) -> Any:
        """JSON of a GET request."""
        return json.loads(self._request("GET", path).read())

    def download(self, path: str) -> int:
        """Reads the body of a GET request, and returns its bytes."""
        response = self._request("GET", path)
        return sum(len(piece) for piece in iter(partial(response.read, _PIECE_BYTES), b""))

    def cancel(self, job: str) -> None:
        """Cancels a job."""
        self._request("POST", f"/jobs/{job}/cancel").read()

    def call(self, model: str, value: Any) -> Any:
        """Output of one call."""
        body = json.dumps({"model": model, "input": value})
        return json.loads(self._request("POST", "/infer", body, JSON).read())["output"]

    def timed_call(self, n: int) -> float:
        """Milliseconds of a call of `echo`. Raises BenchError where its output is wrong."""
        since_s, text = clock.monotonic(), f"call {n}"
        output = self.call("echo", text)
        took_ms = (clock.monotonic() - since_s) * 1000
        if output != text:
            raise BenchError(f"{text} was answered with {output!r}")
        return took_ms

    def close(self) -> None:
        """Closes the connection."""
        self._http.close()

    def _request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None,
        *, status: int = 200,
    ) -> http.client.HTTPResponse:  # fmt: skip
        if clock.monotonic() > self._used_s + _IDLE_S:
            self._http.close()  # it connects again
        streamed = not (body is None or isinstance(body, str))
        both = {**self._headers, **(headers or {})}
        self._http.request(method, path, body, both, encode_chunked=streamed)
        response = self._http.getresponse()
        self._used_s = clock.monotonic()
        if response.status != status:
            raise BenchError(f"the api answered {response.status}: {response.read()!r}")
        return response


def ndjson_blocks(texts: Iterable[Any], lines: int) -> Iterator[bytes]:
    """Yields NDJSON in blocks of so many lines, so that a block costs next to nothing."""
    rest = iter(texts)
    while block := list(islice(rest, lines)):
        yield "\n".join([*map(json.dumps, block), ""]).encode()


def lines_of(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the lines of a body. Raises EOFError where it breaks off within a line."""
    rest = b""
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
    if rest:
        raise EOFError("the body breaks off within a line")
