"""Client of the HTTP api, for the command line, the demo and the benchmarks."""

import json
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import click
import httpx

from jobs import clock, ids
from jobs.states import TERMINAL

_POLL_S = 0.2
_TIMEOUT_S = 600.0
_LINES_A_CHUNK = 1000
_TRIES = 5
_RETRY_S = 1.0
_OUTAGE_S = 600.0  # longest outage of the api that a wait survives
_EVENT, _LAST_EVENT = "data: ", "[DONE]"  # of a stream
_TEMPORARY = frozenset({429, 502, 503, 504, 507})


class ApiError(click.ClickException):
    """Reports an error response; `problem` is its body."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        try:
            self.problem: dict[str, Any] = response.json()
        except ValueError:
            self.problem = {"status": response.status_code, "detail": response.text[:500]}
        others = self.problem.get("error")  # of the routes under /v1
        detail = others["message"] if isinstance(others, dict) else self.problem.get("detail", "")
        faults = self.problem.get("errors", [])[:20]
        lines = [f"{self.problem.get('title', 'refused')}: {detail}"]
        lines += [_fault_line(fault) for fault in faults if fault["message"] not in detail]
        super().__init__("\n".join(lines))


class JobChanged(click.ClickException):
    """Reports that a job was retried while its results were read."""


def _fault_line(fault: dict[str, Any]) -> str:
    where = f"line {fault['line']}" if "line" in fault else ".".join(map(str, fault["loc"]))
    return f"  {where}: {fault['message']}"


def _blocks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Joins lines to larger pieces: each is a chunk on the wire."""
    rest = iter(lines)
    return iter(lambda: b"".join(islice(rest, _LINES_A_CHUNK)), b"")


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Splits at newlines alone: JSON texts may hold other line ends of Unicode."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _post_with_retries(post: Callable[[], httpx.Response]) -> httpx.Response:
    """Retries where the response was lost, or the first request is still processed.

    Raises httpx.ConnectError at once where the first try reaches no server.
    """
    for attempt in range(1, _TRIES):
        try:
            response = post()
            if response.status_code != httpx.codes.CONFLICT:
                return response
        except httpx.TransportError as error:
            if attempt == 1 and isinstance(error, httpx.ConnectError):
                raise
        clock.sleep(_RETRY_S)
    return post()


def _is_temporary(error: Exception) -> bool:
    """Returns True if the api may answer soon, such as after a restart."""
    if isinstance(error, ApiError):
        return error.status in _TEMPORARY
    return isinstance(error, httpx.TransportError)


def _is_writing(job: dict[str, Any]) -> bool:
    output = job.get("output") or {}
    return output.get("state") in ("pending", "writing")


class Client:
    """HTTP client of one api. verify: TLS context (ops/client/tls.py); True: the system's CAs."""

    def __init__(
        self, url: str, key: str | None = None, verify: ssl.SSLContext | bool = True
    ) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else None
        self._http = httpx.Client(base_url=url, timeout=_TIMEOUT_S, headers=headers, verify=verify)

    def request(self, method: str, path: str, **options: Any) -> Any:
        """JSON of a response. Raises ApiError."""
        return self._ok(self._http.request(method, path, **options)).json()

    def get(self, path: str, **query: Any) -> Any:
        """JSON of a GET response. Leaves out parameters that are None. Raises ApiError."""
        return self.request("GET", path, params=_without_none(query))

    def submit(
        self, lines: Iterable[bytes], idempotency_key: str | None = None, **order: Any
    ) -> dict[str, Any]:
        """Streams NDJSON lines as one job, under an Idempotency-Key (default: a new one).

        order: fields of the job. Lines that can be read again (no iterator) are sent again where
        the connection breaks; the job is still created once.
        """
        headers = {
            "Content-Type": "application/x-ndjson",
            "Idempotency-Key": f'"{idempotency_key or ids.new()}"',
        }
        query = {name: _parameter(value) for name, value in order.items()}

        def post() -> httpx.Response:
            """Sends the job."""
            return self._http.post("/jobs", content=_blocks(lines), params=query, headers=headers)

        response = post() if isinstance(lines, Iterator) else _post_with_retries(post)
        return dict(self._ok(response).json())

    def submit_order(self, order: dict[str, Any], key: str | None = None) -> dict[str, Any]:
        """Submits a job as one JSON object, whose items are in S3."""
        headers = {"Idempotency-Key": f'"{key or ids.new()}"'}
        response = _post_with_retries(lambda: self._http.post("/jobs", json=order, headers=headers))
        return dict(self._ok(response).json())

    def job(self, id: str) -> dict[str, Any]:
        """Job object."""
        return dict(self.get(f"/jobs/{id}"))

    def wait(
        self,
        id: str,
        on_poll: Callable[[dict[str, Any]], None] = lambda job: None,
        on_outage: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Waits until the job has ended and its output is written; survives restarts of the api.

        on_poll: called with the job at every poll; on_outage: called where the api doesn't answer.
        """
        while True:
            job = self._job_after_outage(id, on_outage)
            on_poll(job)
            if job["state"] in TERMINAL and not _is_writing(job):
                return job
            clock.sleep(_POLL_S)

    def _job_after_outage(
        self, id: str, on_outage: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        until_s = clock.monotonic() + _OUTAGE_S
        while True:
            try:
                return self.job(id)
            except (httpx.TransportError, ApiError) as error:
                if not _is_temporary(error) or clock.monotonic() > until_s:
                    raise
            on_outage()
            clock.sleep(_RETRY_S)

    def delete(self, id: str) -> None:
        """Deletes a job."""
        self._ok(self._http.delete(f"/jobs/{id}"))

    def results(self, id: str, **query: Any) -> Iterator[str]:
        """Yields NDJSON lines of results."""
        return map(bytes.decode, self._stream(f"/jobs/{id}/results", query))

    def resumable_results(self, id: str, after: int = -1, gaps: bool = False) -> Iterator[bytes]:
        """Yields lines of results; resumes after the last one where the connection breaks.

        Raises JobChanged where the job was retried meanwhile: its results differ then.
        """
        generation, tries, last = self.job(id)["generation"], 0, b""
        while True:
            try:
                for line in self._stream(f"/jobs/{id}/results", {"after": after, "gaps": gaps}):
                    last, tries = line, 0
                    yield line
                return
            except (httpx.TransportError, ApiError) as error:
                tries += 1
                if not _is_temporary(error) or tries == _TRIES:
                    raise
            clock.sleep(_RETRY_S)
            if self._job_after_outage(id)["generation"] != generation:
                raise JobChanged(f"{id} was retried while its results were read; read them again")
            after = json.loads(last)["seq"] if last else after

    def usage_csv(self, **query: Any) -> Iterator[str]:
        """Yields the lines of GET /usage as CSV. Leaves out parameters that are None."""
        for line in self._stream("/usage", _without_none(query) | {"format": "csv"}):
            yield line.rstrip(b"\r").decode()

    def _stream(self, path: str, query: dict[str, Any]) -> Iterator[bytes]:
        with self._http.stream("GET", path, params=query) as response:
            if response.is_error:
                response.read()
            self._ok(response)
            yield from _lines(response.iter_bytes())

    def infer(
        self,
        model: str,
        value: Any,
        timeout_ms: int = 10_000,
        key: str | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Makes one call. key: Idempotency-Key; more: further fields of its body."""
        body = {"model": model, "input": value, "timeout_ms": timeout_ms, **more}
        headers = {"Idempotency-Key": f'"{key}"'} if key else None
        return dict(self.request("POST", "/infer", json=body, headers=headers))

    def chat(
        self, model: str, messages: Sequence[dict[str, str]], **fields: Any
    ) -> Iterator[dict[str, Any]]:
        """Streams the answer to a conversation: yields OpenAI's chunks as they come.

        fields: of the request. Leaving the iterator ends the generation. Raises ApiError.
        """
        body = {"model": model, "messages": messages, "stream": True, **fields}
        with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.is_error:
                response.read()
            self._ok(response)
            for line in response.iter_lines():
                if line.startswith(_EVENT) and not line.endswith(_LAST_EVENT):
                    yield json.loads(line.removeprefix(_EVENT))

    @staticmethod
    def _ok(response: httpx.Response) -> httpx.Response:
        if response.is_error:
            raise ApiError(response)
        return response

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()


def _without_none(query: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}


def _parameter(value: Any) -> Any:
    """Query parameter: texts and numbers unchanged, all else as JSON."""
    return value if isinstance(value, str | int | float) else json.dumps(value)
