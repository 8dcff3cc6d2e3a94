"""Quotas on a Redis Cluster: in the slot of their tenant, charged before a call is queued in its
model's slot."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from redis.exceptions import RedisError

from api.gateway.redis_pipeline import Pipeline, PipelineScript
from jobs.calls import scripts
from jobs.calls.accounting.quota_arguments import open_keys, quota_arguments
from jobs.calls.keys import rates_key
from jobs.calls.lanes import Rejection, Terms
from jobs.calls.quotas import Estimate, Quota, Remaining
from jobs.calls.redis import read_remaining, refused
from jobs.errors import DeadlinePassed

_log = logging.getLogger(__name__)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Charge:
    """One call to charge to its quota."""

    quota: Quota
    id: str
    size: Estimate
    timeout_ms: int
    terms: Terms


class QuotaReservations:
    """Charges calls before they are queued, and gives back what those that were rejected paid.

    A call is open until it has ended here; if this process dies, until its deadline.
    """

    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe
        self._reserve = PipelineScript(pipe, scripts.RESERVE)
        self._refund = PipelineScript(pipe, scripts.REFUND)

    async def during(
        self,
        charge: Charge,
        enqueue: Callable[[], Awaitable[Result | Rejection]],
        on_charged: Callable[[list[Remaining]], None],
    ) -> Result | Rejection:
        """Runs a call under its quota; returns its result, or why it was rejected. `on_charged`
        gets the rest of each rate. Raises DeadlinePassed, RedisError and what the call raises."""
        keys, arguments = [rates_key(charge.quota.tenant)], _arguments(charge)
        bounds = charge.timeout_ms, charge.terms.one_ms
        try:
            async with asyncio.timeout(charge.timeout_ms / 1000):
                reply = await self._reserve.ask(keys, [charge.id, *bounds, *arguments])
        except TimeoutError:
            self._refund.send(_note, keys, [charge.id, *arguments])
            raise DeadlinePassed(f"no answer within {charge.timeout_ms} ms") from None
        if rejected := refused(reply, charge.quota):
            return rejected
        on_charged(read_remaining(reply))
        admitted = True
        try:
            result = await enqueue()
            admitted = not isinstance(result, Rejection)
            return result
        finally:
            if admitted:
                for key in open_keys(charge.quota):
                    self._pipe.send(_note, "ZREM", key, charge.id)
            else:
                self._refund.send(_note, keys, [charge.id, *arguments])


def _arguments(charge: Charge) -> list[Any]:
    return quota_arguments(charge.quota, charge.size)


def _note(reply: Any) -> None:
    if isinstance(reply, RedisError):
        _log.warning("couldn't give back the quota of a call that ended: %s", reply)
