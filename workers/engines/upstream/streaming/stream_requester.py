"""Requester of streams: sends one body to an upstream, within its concurrency and breaker."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import orjson

from jobs.models.engines.upstream_options import UpstreamOptions
from jobs.models.model import Model
from jobs.telemetry.tracing import spans
from workers.engines.protocol import Permanent, Room, Transient
from workers.engines.upstream import outcomes
from workers.engines.upstream.client import UpstreamClient
from workers.engines.upstream.limiter import Limiter
from workers.http_client.client import NoResponse, Response, Slow, StreamedResponse

_MOST_ERROR_BYTES = 65_536  # of a body that says what is wrong


class StreamRequester:
    """Sends requests from any thread. Raises ValueError where a secret can't be read."""

    def __init__(
        self, model: Model, options: UpstreamOptions, headers: Mapping[str, str] | None = None
    ) -> None:
        self._client = UpstreamClient(options, headers)
        self._most_bytes = options.max_answer_mb << 20
        self._limiter = Limiter(model.key, options.concurrency, options.breaker)

    def room(self) -> Room:
        """Returns the requests that may be in flight now."""
        return self._limiter.room()

    def get(self, path: str) -> Response:
        """Sends a GET to the same server, outside of the concurrency. Raises as `Client.send`."""
        return self._client.get(path)

    def ask(self, url: str, body: bytes) -> Any:
        """Posts a body, and returns the JSON of the answer, from which neither the concurrency nor
        the breaker learns. Raises as `open` does."""
        found, most = bytearray(), self._most_bytes
        with self.open(url, body, learns=False) as response:
            for piece in response.pieces:
                found += piece
                if len(found) > most:
                    raise Permanent(f"upstream: its answer has more than {most} bytes")
        try:
            return orjson.loads(found)
        except orjson.JSONDecodeError:
            raise Permanent("upstream answered with what is not JSON") from None

    @contextmanager
    def open(self, url: str, body: bytes, *, learns: bool = True) -> Iterator[StreamedResponse]:
        """Posts a body, and yields the response while its stream comes.

        Raises InvalidInput, Transient, RateLimited or Permanent, also where the stream breaks off.
        """
        with self._limiter.permit() as permit, spans.child_span("POST", "client") as span:
            span.set_attributes(
                http__request__method="POST", server__address=urlsplit(url).hostname
            )
            try:
                with self._client.stream(url, body) as response:
                    permit.verdict = outcomes.verdict(response.status)
                    span.set_attributes(http__response__status_code=response.status)
                    if not 200 <= response.status < 300:
                        whole = _whole(response)
                        permit.pause_s = outcomes.pause_s(whole)
                        message = outcomes.message_of(whole, self._client.without_secrets)
                        span.error = str(response.status)
                        raise outcomes.failure(whole, message) or Permanent("unknown status")
                    yield response
            except NoResponse as error:
                permit.verdict = span.error = "silent" if isinstance(error, Slow) else "failed"
                raise Transient(f"upstream: {error}") from error
            finally:
                if not learns:
                    permit.verdict = "withdrawn"

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()


def _whole(response: StreamedResponse) -> Response:
    """Reads the body of an error."""
    body = b""
    for piece in response.pieces:
        body += piece
        if len(body) > _MOST_ERROR_BYTES:
            break
    return Response(response.status, response.headers, body[:_MOST_ERROR_BYTES])
