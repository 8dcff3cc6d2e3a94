"""Requester: sends one body to an upstream and returns JSON or a failure."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import orjson

from jobs import clock
from jobs.models.engines.upstream_options import UpstreamOptions
from jobs.models.model import Model
from jobs.telemetry.tracing import spans
from jobs.telemetry.tracing.spans import Span
from workers.engines.protocol import Engine, Permanent, RateLimited, Room, Transient
from workers.engines.upstream import outcomes
from workers.engines.upstream.client import UpstreamClient
from workers.engines.upstream.limiter import Limiter, Permit
from workers.engines.upstream.outcomes import Failure
from workers.http_client.client import NoResponse, Response, Slow, TooLarge

# The limit is found by sending too much: a refused request is sent once more, where that is in
# time, before its input goes back through the database.
_WAIT_S = 0.3
_MAX_WAIT_S = 2.0


class Requester:
    """Sends requests from any thread. Raises ValueError where a secret can't be read, and
    NoResponse where a declared health check fails: the model is loaded once it doesn't."""

    def __init__(
        self, model: Model, options: UpstreamOptions, headers: Mapping[str, str] | None = None
    ) -> None:
        self._client, self._health = UpstreamClient(options, headers), options.health
        self._gate = Limiter(model.key, options.concurrency, options.breaker)
        # Time of a launch that one request leaves.
        self._spare_s = model.limits.max_launch_s - options.timeout_s - options.connect_timeout_s
        try:
            self._check_health()
        except BaseException:
            self._client.close()
            raise

    def room(self) -> Room:
        """Returns the requests that may be in flight now."""
        return self._gate.room()

    def ask(self, method: str, url: str, body: bytes, *, quoting: bool = True) -> Any | Failure:
        """Returns the JSON of the response, or its failure. `quoting` allows that to quote the
        upstream. Raises RateLimited while the breaker is open."""
        until_s = clock.monotonic() + self._spare_s
        result, permit = self._once(method, url, body, quoting)
        if permit.verdict == "refused" and not permit.tries:
            wait_s = (_WAIT_S if permit.pause_s is None else permit.pause_s) + clock.jitter(_WAIT_S)
            if wait_s <= _MAX_WAIT_S and clock.monotonic() + wait_s <= until_s:
                clock.sleep(wait_s)
                result, permit = self._once(method, url, body, quoting)
        if not isinstance(result, Response):
            return _without_cost(result) if permit.tries else result
        try:
            return orjson.loads(result.body)
        except orjson.JSONDecodeError:
            return Permanent(f"upstream answered {result.status} with what is not JSON")

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def _once(
        self, method: str, url: str, body: bytes, quoting: bool
    ) -> tuple[Response | Failure, Permit]:
        with self._gate.permit() as permit, spans.child_span(method, "client") as span:
            span.set_attributes(
                http__request__method=method, server__address=urlsplit(url).hostname
            )
            return self._send(permit, method, url, body, quoting, span), permit

    def _send(
        self, permit: Permit, method: str, url: str, body: bytes, quoting: bool, span: Span
    ) -> Response | Failure:
        try:
            if permit.tries:
                self._check_health()
            response = self._client.send(method, url, body)
        except NoResponse as error:
            permit.verdict = span.error = "silent" if isinstance(error, Slow) else "failed"
            return Transient(f"upstream: {error}")
        except TooLarge as error:
            permit.verdict = "answered"
            return Permanent(f"upstream: {error}")
        span.set_attributes(http__response__status_code=response.status)
        span.error = str(response.status) if response.status >= 400 else ""
        permit.verdict, permit.pause_s = (
            outcomes.verdict(response.status),
            outcomes.pause_s(response),
        )
        message = outcomes.message_of(response, self._client.without_secrets) if quoting else ""
        return outcomes.failure(response, message) or response

    def _check_health(self) -> None:
        if self._health and not 200 <= (status := self._client.get(self._health).status) < 300:
            raise NoResponse(f"its health check answered {status}")


class UpstreamEngine(Engine):
    """Base of the engines that send requests to an upstream. It has no samples: requests cost the
    upstream."""

    _upstream: Requester

    def room(self) -> Room:
        """Returns the room of the limiter."""
        return self._upstream.room()

    def close(self) -> None:
        """Closes the connections."""
        self._upstream.close()


def _without_cost(failure: Failure) -> Failure:
    """Makes a failure count as no try: an input that tried first must not pay for an outage."""
    if isinstance(failure, Transient) and not isinstance(failure, RateLimited):
        return RateLimited(str(failure), 0.0)
    return failure
