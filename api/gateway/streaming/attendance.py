"""Signs of life of an api process, whose calls are dropped some time after they end; and calls that
Redis has lost."""

import asyncio
from collections.abc import Iterable
from typing import Any

from api.gateway.model_status import ModelStatus
from api.gateway.redis_pipeline import Pipeline, PipelineScript
from jobs import clock
from jobs.calls import scripts
from jobs.calls.messages import pack_lost
from jobs.calls.redis import REPLY_TTL_S
from jobs.calls.streams.resumption import attend_arguments

_EVERY_S = 1.0  # for a model with new calls
_ASKED_AT_ONCE = 1000  # calls of one message


class Attendance:
    """Tells Redis that a process waits for calls, and asks which of them it doesn't know."""

    def __init__(self, pipe: Pipeline, reply_to: str) -> None:
        self._pipe, self._reply_to = pipe, reply_to
        self._attend = PipelineScript(pipe, scripts.ATTEND)
        self._told_s: dict[str, float] = {}  # by model, on the process's clock
        self._unknown = set[str]()  # at the latest look

    def tell(self, status: ModelStatus) -> None:
        """Tells it of a new call for a model that generates, unless it was told a moment ago."""
        model = status.model
        if (
            not model.spec.generates
            or clock.monotonic() < self._told_s.get(model.key, 0) + _EVERY_S
        ):
            return
        self._told_s[model.key] = clock.monotonic()
        arguments = attend_arguments(self._reply_to, ())
        self._attend.send(_ignore, status.keys.all(), arguments)

    async def look(self, calls: Iterable[tuple[ModelStatus, str]]) -> None:
        """Looks for calls that Redis doesn't know: it was flushed, or restarted empty.

        One that is unknown twice in a row is called lost in a message behind its reply, if that is
        on its way: a process that was starved, or stopped, has some of them to read first.
        """
        by_id = {id: status for status, id in calls}
        before, self._unknown = self._unknown, await self._ask((s, id) for id, s in by_id.items())
        lost: dict[str, list[str]] = {}
        for id in before & self._unknown:
            lost.setdefault(by_id[id].keys.replies(self._reply_to), []).append(id)
        for key, ids in lost.items():
            self._pipe.send(_ignore, "RPUSH", key, pack_lost(ids))
            self._pipe.send(_ignore, "EXPIRE", key, REPLY_TTL_S)

    async def _ask(self, calls: Iterable[tuple[ModelStatus, str]]) -> set[str]:
        """Returns the calls that Redis doesn't know; one node of a cluster may be silent."""
        by_model: dict[str, tuple[ModelStatus, list[str]]] = {}
        for status, id in calls:
            by_model.setdefault(status.keys.model, (status, []))[1].append(id)
        unknown = await asyncio.gather(
            *(
                self._attend.ask(
                    status.names, attend_arguments(self._reply_to, ids[n : n + _ASKED_AT_ONCE])
                )
                for status, ids in by_model.values()
                for n in range(0, len(ids), _ASKED_AT_ONCE)
            ),
            return_exceptions=True,
        )
        return {id.decode() for ids in unknown if isinstance(ids, list) for id in ids}


def _ignore(reply: Any) -> None:
    """Ignores the reply: it is told again with the next call, or within a second."""
