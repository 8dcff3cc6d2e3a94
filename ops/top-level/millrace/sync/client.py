# Generated from millrace.aio by ops/generate_sync_client.py; change it there.
"""The client: maps a model over inputs, makes calls, and asks the api for anything else."""

import os
import ssl
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from millrace.clock import Deadline
from millrace.errors import InputError
from millrace.inputs.lines import lines_of
from millrace.objects import Call, Model
from millrace.progress import Progress, progress_of
from millrace.retries import MAX_RETRIES
from millrace.sync.chat import Chats
from millrace.sync.jobs import Jobs
from millrace.sync.results import Reader, Results
from millrace.sync.transport import Transport, line_blocks
from millrace.tls import verification
from millrace.wire import Request, found_by, idempotency, without_none

if TYPE_CHECKING:
    import httpx

_URL = "http://127.0.0.1:8000"
_TIMEOUT_S = 600.0
_CALL_S = 10.0
_CONNECTIONS = 100
"""Connections at a time. Idle ones are all kept: of those above a limit httpcore also closes one
that a request has just been given (https://github.com/encode/httpcore/issues/1110)."""


class Client:
    """Client of one api; keeps its connections, and may be shared by threads.

    base_url, api_key: default: MILLRACE_URL, else this machine's; MILLRACE_API_KEY. timeout_s: for
    each step of a request; max_retries: of a request. verify: TLS context
    (`millrace.tls_context`); True: the system's CAs. http_client: with options of your own, such
    as proxies; it isn't changed, and you close it. Raises InputError for what can't be an API key.

    Attributes:
        jobs: the jobs of the api.
        chat: conversations with its models.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_s: float = _TIMEOUT_S,
        max_retries: int = MAX_RETRIES,
        verify: ssl.SSLContext | bool = True,
        http_client: "httpx.Client | None" = None,
    ) -> None:
        import httpx  # not for those who only look at the names here

        # A file, or `$(cat …)` of one, often ends with a line end.
        url = (base_url or os.environ.get("MILLRACE_URL") or _URL).strip()
        key = (api_key or os.environ.get("MILLRACE_API_KEY") or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise InputError("the API key has a character that no key has")
        limits = httpx.Limits(max_connections=_CONNECTIONS)
        http = http_client or httpx.Client(verify=verification(url, verify), limits=limits)
        own = http_client is None
        self._transport = Transport(
            url, key, http, timeout_s=timeout_s, max_retries=max_retries, own=own
        )
        self.jobs = Jobs(self._transport)
        self.chat = Chats(self._transport)

    def map(
        self,
        model: str,
        inputs: Any,
        *,
        column: str = "",
        id_column: str = "",
        progress: bool | Progress | None = None,
        timeout_s: float | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        **terms: Any,
    ) -> Results:
        """Runs a model over inputs as one job, and returns an iterator over the results in order,
        which come while the job runs.

        inputs: as a job takes them; both they and the results are streamed. progress: shows a bar
        (default: on a terminal). timeout_s: until the last result: then WaitTimeout is raised, and
        the job goes on. So it does after Ctrl-C, which says how to come back. name, labels: to find
        the job by. terms: of the job. Raises InputError, APIError; a failed item is a result with
        its error.
        """
        lines, deadline = lines_of(inputs, column, id_column), Deadline(timeout_s)
        if next(iter(lines), None) is None:
            return Results(Reader(self._transport, ""))
        request = Request(
            "POST",
            "/jobs",
            {"model": model, **found_by(name, labels), **terms},
            lines=lines,
            headers=idempotency(idempotency_key),
        )
        job = (self._transport.send(request, deadline)).json()
        reader = Reader(
            self._transport,
            job["id"],
            deadline=deadline,
            progress=progress_of(progress, job),
            generation=job["generation"],
        )
        return Results(reader)

    def infer(
        self,
        model: str,
        input: Any,
        *,
        params: Mapping[str, Any] | None = None,
        timeout_s: float = _CALL_S,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Call:
        """Makes one call, within so many seconds. fields: of its body, such as `class`.

        Raises APIError.
        """
        timeout_ms = max(1, round(timeout_s * 1000))
        body = {"model": model, "input": input, "timeout_ms": timeout_ms, **fields}
        if params:
            body["params"] = params
        request = Request("POST", "/infer", json=body, headers=idempotency(idempotency_key))
        return Call((self._transport.send(request, Deadline(timeout_s))).json())

    def models(self) -> list[Model]:
        """Returns the versions of models, and their state in the workers."""
        return [Model(model) for model in (self.get("/models"))["data"]]

    def request(self, method: str, path: str, **options: Any) -> Any:
        """Returns the JSON of any operation of the api, None where it answers without any. options:
        json, params, headers.

        A POST is sent again only where it wasn't taken, unless it has an Idempotency-Key. Raises
        APIError.
        """
        headers = {name.lower() for name in options.get("headers") or {}}
        repeatable = method != "POST" or "idempotency-key" in headers
        request = Request(method, path, repeatable=repeatable, **without_none(options))
        response = self._transport.send(request)
        return response.json() if response.content else None

    def get(self, path: str, **query: Any) -> Any:
        """Returns the JSON of a GET request. Leaves out parameters that are None."""
        return self.request("GET", path, params=without_none(query))

    def lines(self, path: str, **query: Any) -> Iterator[bytes]:
        """Yields the lines of a GET request. Leaves out parameters that are None."""
        with self._transport.open(Request("GET", path, without_none(query))) as response:
            for block in line_blocks(response):
                for line in block:
                    yield line.rstrip(b"\r")

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
