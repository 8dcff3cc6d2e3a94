"""An upstream as its engine sees it: asked with a body, it answers with JSON or with a failure."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import orjson

from jobs import clock
from jobs.models.engines.upstream_options import UpstreamOptions
from jobs.models.model import Model
from jobs.telemetry.tracing import spans
from jobs.telemetry.tracing.spans import Span
from workers.engines.protocol import Permanent, RateLimited, Room, Transient
from workers.engines.upstream import outcomes
from workers.engines.upstream.limiter import Limiter, Pass
from workers.engines.upstream.outcomes import Failure
from workers.http_client.pooled import Client, Slow, TooLarge, Unreachable, UpstreamResponse

_WAIT_S = 0.3
_PATIENCE_S = 2.0
"""So soon who was refused asks once more, where that is in time, before its input goes back: the
limit is found by asking for too much, and others are not to pay with the way through the
database."""


class Requester:
    """For any thread. Raises ValueError where a secret can't be read, and Unreachable where a
    health check is declared and fails: the model is loaded when it doesn't."""

    def __init__(
        self, model: Model, options: UpstreamOptions, headers: Mapping[str, str] | None = None
    ) -> None:
        self._client, self._health = Client(options, headers), options.health
        self._gate = Limiter(model.key, options.concurrency, options.breaker)
        # Of what a launch may take, what one request leaves.
        self._spare_s = model.limits.max_launch_s - options.timeout_s - options.connect_timeout_s
        try:
            self._check_health()
        except BaseException:
            self._client.close()
            raise

    def room(self) -> Room:
        return self._gate.room()

    def ask(self, method: str, url: str, body: bytes, *, quoting: bool = True) -> Any | Failure:
        """The JSON of the answer, or what its failure means for the input. quoting: that may say
        what the upstream said. Raises RateLimited while it is left alone."""
        until_s = clock.monotonic() + self._spare_s
        answered, one = self._once(method, url, body, quoting)
        if one.verdict == "refused" and not one.tries:
            wait_s = (_WAIT_S if one.asked_s is None else one.asked_s) + clock.jitter(_WAIT_S)
            if wait_s <= _PATIENCE_S and clock.monotonic() + wait_s <= until_s:
                clock.sleep(wait_s)
                answered, one = self._once(method, url, body, quoting)
        if not isinstance(answered, UpstreamResponse):
            return _without_cost(answered) if one.tries else answered
        try:
            return orjson.loads(answered.body)
        except orjson.JSONDecodeError:
            return Permanent(f"upstream answered {answered.status} with what is not JSON")

    def close(self) -> None:
        self._client.close()

    def _once(
        self, method: str, url: str, body: bytes, quoting: bool
    ) -> tuple[UpstreamResponse | Failure, Pass]:
        with self._gate.passing() as one, spans.begun(method, "client") as span:
            span.note(http__request__method=method, server__address=urlsplit(url).hostname)
            return self._send(one, method, url, body, quoting, span), one

    def _send(
        self, one: Pass, method: str, url: str, body: bytes, quoting: bool, span: Span
    ) -> UpstreamResponse | Failure:
        try:
            if one.tries:
                self._check_health()
            answer = self._client.send(method, url, body)
        except Unreachable as error:
            one.verdict = span.error = "silent" if isinstance(error, Slow) else "failed"
            return Transient(f"upstream: {error}")
        except TooLarge as error:
            one.verdict = "answered"
            return Permanent(f"upstream: {error}")
        span.note(http__response__status_code=answer.status)
        span.error = str(answer.status) if answer.status >= 400 else ""
        one.verdict, one.asked_s = outcomes.verdict(answer.status), outcomes.asked_s(answer)
        words = outcomes.words_of(answer, self._client.without_secrets) if quoting else ""
        return outcomes.failure(answer, words) or answer

    def _check_health(self) -> None:
        if self._health and not 200 <= (status := self._client.get(self._health).status) < 300:
            raise Unreachable(f"its health check answered {status}")


def _without_cost(failure: Failure) -> Failure:
    """An input that only was the first to try is not to pay for an outage."""
    if isinstance(failure, Transient) and not isinstance(failure, RateLimited):
        return RateLimited(str(failure), 0.0)
    return failure
