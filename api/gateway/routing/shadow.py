"""Copies of calls for a version that is tried out: sent once the call is answered, compared,
dropped. Nobody pays for them, and they are the first to be shed."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import orjson
from redis.exceptions import RedisError

from api import background
from api.gateway.fallbacks import FallbackPlan, plan_of_other
from api.gateway.gateway import CallGateway
from api.gateway.redis_pipeline import Pipeline
from api.gateway.requests import InferenceRequest
from api.gateway.routing.comparison import Comparison, compare
from jobs import clock, ids
from jobs.calls.keys import Keys
from jobs.calls.messages import SHADOW
from jobs.errors import MillraceError, NoWorker, Overloaded, TooLate
from jobs.models.model import Model
from jobs.telemetry.metrics import routing as metrics

Outcome: TypeAlias = Comparison | Literal["failed", "shed"]

_log = logging.getLogger(__name__)
_MOST_BYTES = 65_536  # of an input and of outputs: longer ones would hold up other requests
_MOST_COPIES = 16  # at a time
_TIMEOUT_MS = 10_000
_COUNTS_TTL_S = 7 * 86_400  # after the last copy
_COUNTS_WAIT_S = 1.0  # for Redis
_WEIGHT = 0.01  # of its tenant among the shadow's calls


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """Answered call that is to be copied."""

    tenant: str
    value: bytes  #: input, as JSON
    plan: FallbackPlan  #: by which it was answered
    output: bytes  #: JSON text


class ShadowCalls:
    """Copies of the calls of one api process."""

    def __init__(self, gateway: CallGateway, pipe: Pipeline) -> None:
        """pipe: on which they are counted."""
        self._gateway, self._pipe = gateway, pipe
        self._copies: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Drops the copies that are on their way."""
        for task in self._copies:
            task.cancel()
        await asyncio.gather(*self._copies, return_exceptions=True)

    def copy(self, call: AnsweredCall, shadow: Model) -> None:
        """Sends a copy in the background, unless other calls wait or it is a large one."""
        if self._sheds(call, shadow):
            self._count(call.plan.model, shadow, "shed")
            return
        task = background.spawn("shadow", self._run(call, shadow))
        self._copies.add(task)
        task.add_done_callback(self._copies.discard)

    async def counts(self, shadow: str) -> dict[str, dict[str, int]]:
        """Returns the copies for a version (name@version) until a week after the last one, by the
        version that answered and by outcome; {} where Redis doesn't tell."""
        try:
            async with asyncio.timeout(_COUNTS_WAIT_S):
                found = await self._pipe.ask("HGETALL", counts_key(shadow))
        except (RedisError, TimeoutError):
            return {}
        counts: dict[str, dict[str, int]] = {}
        for name, count in zip(found[::2], found[1::2], strict=True):
            version, _, outcome = name.decode().rpartition(" ")
            counts.setdefault(version, {})[outcome] = int(count)
        return counts

    def _sheds(self, call: AnsweredCall, shadow: Model) -> bool:
        large = len(call.value) > _MOST_BYTES or len(call.output) > _MOST_BYTES
        return (
            large
            or len(self._copies) >= _MOST_COPIES
            or self._gateway.waits_for(call.plan.model.served_by.key, shadow.served_by.key)
        )

    async def _run(self, call: AnsweredCall, shadow: Model) -> None:
        try:
            outcome = await self._compared(call, shadow)
        except Exception:  # on a task of its own, where it would be lost
            _log.exception("a call couldn't be copied for %s", shadow.key)
            outcome = "failed"
        self._count(call.plan.model, shadow, outcome)

    async def _compared(self, call: AnsweredCall, shadow: Model) -> Outcome:
        plan = plan_of_other(shadow, orjson.loads(call.value), call.plan.params, SHADOW)
        if plan is None:
            return "failed"
        try:
            _, (output, error, *_) = await self._gateway.infer(_request(call), [plan])
        except (NoWorker, Overloaded, TooLate):
            return "shed"
        except (MillraceError, RedisError):
            return "failed"
        if error is not None or output is None:
            return "failed"
        return "different" if len(output) > _MOST_BYTES else compare(call.output, output)

    def _count(self, model: Model, shadow: Model, outcome: Outcome) -> None:
        metrics.shadowed(model.key, shadow.key, outcome)
        key = counts_key(shadow.key)
        self._pipe.send(_ignore_reply, "HINCRBY", key, f"{model.version} {outcome}", 1)
        self._pipe.send(_ignore_reply, "EXPIRE", key, _COUNTS_TTL_S)


def counts_key(shadow: str) -> str:
    """Returns the key of the hash that counts the copies for a version (name@version): fields
    "version outcome", by the version that answered."""
    return Keys(shadow)("shadow")


def _ignore_reply(reply: Any) -> None:
    """Ignores the reply: a copy that Redis did not count is one less."""


def _request(call: AnsweredCall) -> InferenceRequest:
    never = asyncio.get_running_loop().create_future()
    return InferenceRequest(
        id=ids.new_shown("call"),
        tenant=call.tenant,
        value=orjson.Fragment(call.value),
        share=0.0,
        job_class="bulk",
        weight=_WEIGHT,
        timeout_ms=_TIMEOUT_MS,
        deadline_s=clock.monotonic() + _TIMEOUT_MS / 1000,
        client_disconnected=never,
        ready_s=clock.monotonic(),
    )
