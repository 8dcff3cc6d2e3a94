"""Events of `POST /infer` with `"stream": true`: tokens, then usage and timing, or an error."""

from collections import Counter
from typing import Any

import orjson

from api.gateway import metrics
from api.gateway.inference import CallResult
from api.gateway.streaming.event_stream import event
from api.http.errors import problem_object
from jobs import clock
from jobs.calls.messages import ChoiceDelta, Delta
from jobs.errors import MillraceError


class CallEvents:
    """Writes `tokens` events, then one `done` or one `error`."""

    def __init__(self, since_s: float) -> None:
        """since_s: time of the request on the process's clock."""
        self._since_s = since_s
        self._tokens: Counter[int] = Counter()  # so far, by choice

    def begin(self) -> bytes:
        """Implements `EventWriter.begin`."""
        return b""

    def write(self, delta: Delta) -> bytes:
        """Implements `EventWriter.write`: an event for each choice."""
        return b"".join(event(self._choice(choice), "tokens") for choice in delta.choices)

    def end(self, result: CallResult) -> bytes:
        """Implements `EventWriter.end`."""
        model = result.plan.model
        total_ms = round((clock.monotonic() - self._since_s) * 1000, 3)
        timing = {
            "gateway_ms": metrics.gateway_ms(total_ms, result.timing),
            **result.timing,
            "total_ms": total_ms,
        }
        usage = orjson.loads(result.output).get("usage") or {}
        named: dict[str, Any] = {"id": result.id, "model": model.name, "version": model.version}
        if result.plan.degraded:
            named["degraded"] = result.plan.degraded
        return event({**named, "usage": usage, "timing": timing}, "done")

    def fail(self, error: MillraceError, request_id: str) -> bytes:
        """Implements `EventWriter.fail`."""
        return event(problem_object(error, request_id), "error")

    def _choice(self, choice: ChoiceDelta) -> dict[str, Any]:
        data: dict[str, Any] = {
            "choice": choice.index,
            "index": self._tokens[choice.index],
            "text": choice.text,
            "tokens": choice.tokens,
        }
        if choice.logprobs:
            data["logprobs"] = choice.logprobs
        if choice.prompt_logprobs:
            data["prompt_logprobs"] = choice.prompt_logprobs
        if choice.prompt_tokens:
            data["prompt_token_ids"] = choice.prompt_tokens
        if choice.finish:
            data["finish_reason"] = choice.finish
        if choice.stopped_by is not None:
            data["stop_reason"] = choice.stopped_by
        self._tokens[choice.index] += len(choice.tokens)
        return data
