"""Calls in Redis that are known by their id alone: found, taken over, cancelled."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from api.gateway.redis_pipeline import Pipeline, PipelineScript
from jobs.calls import scripts
from jobs.calls.keys import Keys
from jobs.calls.messages import Delta, UnpackedReply, unpack_call
from jobs.calls.streams.resumption import (
    Attached,
    attach_arguments,
    cancel_arguments,
    read_attached,
    read_entries,
)
from jobs.errors import NotFound
from jobs.models.model import Model
from jobs.models.registry import Registry

_OWNER = "owner:"


@dataclass(frozen=True, slots=True)
class KnownStream:
    """Call that streams, or has streamed a moment ago."""

    model: Model  #: with its adapter
    resume_within_s: int = 0  #: see Call


class KnownCalls:
    """Looks calls up in the lanes of all models: their ids don't say which model has them."""

    def __init__(self, pipe: Pipeline, *, clustered: bool) -> None:
        self._pipe, self._clustered = pipe, clustered
        self._attach = PipelineScript(pipe, scripts.ATTACH)
        self._cancel = PipelineScript(pipe, scripts.CANCEL)

    async def find_stream(self, models: Registry, id: str, tenant: str) -> KnownStream:
        """Finds a call of a tenant that streams, or has streamed a moment ago. Raises NotFound,
        RedisError."""
        streaming = [model for model in models if model.spec.generates]
        known = await asyncio.gather(
            *(self._find(models, model, id, tenant) for model in streaming)
        )
        for stream in known:
            if stream:
                return stream
        raise _unknown(id)

    async def attach(self, model: Model, id: str, tenant: str, reply_to: str) -> Attached:
        """Takes over a call that streams, for the api process `reply_to`. Raises NotFound where
        nothing is left of it, RedisError."""
        keys = self._keys(model)
        arguments = attach_arguments(keys, id, tenant, reply_to)
        attached = read_attached(id, await self._attach.ask(keys.all(), arguments))
        if attached is None:
            raise _unknown(id)
        return attached

    async def log(self, model: Model, id: str) -> tuple[Sequence[Delta], UnpackedReply | None]:
        """Returns the deltas of a stream so far, and its reply once it has ended. Raises
        RedisError."""
        return read_entries(await self._pipe.ask("LRANGE", self._keys(model).log(id), 0, -1))

    async def cancel(self, models: Iterable[Model], id: str, tenant: str) -> None:
        """Ends a call of a tenant, at whichever api and worker. Raises NotFound, RedisError."""
        each = [self._keys(model) for model in models]
        asked = (self._cancel.ask(k.all(), cancel_arguments(k, id, tenant)) for k in each)
        if not any(await asyncio.gather(*asked)):
            raise NotFound(f"there is no call {id} that waits or runs; it may have ended")

    async def _find(
        self, models: Registry, model: Model, id: str, tenant: str
    ) -> KnownStream | None:
        keys, adapters = self._keys(model), models.adapters_of(model.key)
        packed, owner = await asyncio.gather(
            self._pipe.ask("HGET", keys("calls"), id), self._pipe.ask("GET", keys(_OWNER + id))
        )
        if packed is None:
            its, _, adapter = (owner or b"").decode().partition("\n")
            return KnownStream(adapters.get(adapter, model)) if its == tenant else None
        head, _, value = packed.split(b"\n", 2)
        call = unpack_call(id, head, value)
        if not call.stream or call.tenant != tenant:
            return None
        return KnownStream(adapters.get(call.adapter, model), call.resume_within_s)

    def _keys(self, model: Model) -> Keys:
        return Keys(model.served_by.key, self._clustered)


def _unknown(id: str) -> Any:
    return NotFound(
        f"there is no stream {id}: it was cancelled, ended more than a minute ago, was never a "
        "stream, or was lost with Redis"
    )
