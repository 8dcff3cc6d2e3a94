"""Calls from this api process: put into a central lane, then awaited on its own reply list."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import RedisError

from jobs import ids
from jobs.calls import scripts
from jobs.calls.lanes import Refused, Terms, bucket_of, lane_name
from jobs.calls.messages import Call, unpack_replies
from jobs.calls.redis import Keys, drop_arguments, put_arguments, refused, reply_key
from jobs.errors import DeadlinePassed, NoWorker, Overloaded, Unavailable
from jobs.registry import Model

_log = logging.getLogger(__name__)
_BLOCK_S = 5
_RETRY_S = 0.2
_CONNECTIONS = 64
_WATCH_S = 1.0

Answer = tuple[Any, list[str] | None, int, dict[str, Any]]


class CallGateway:
    """output, error, units, timing of one call at a time; any number of them concurrently."""

    def __init__(self, redis_url: str, most_waiting: int) -> None:
        pool = BlockingConnectionPool.from_url(
            redis_url, max_connections=_CONNECTIONS, socket_timeout=_BLOCK_S + 5
        )
        self._redis: Redis = Redis.from_pool(pool)
        self._most_waiting = most_waiting
        self._name = ids.show("api", ids.new())
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._put = self._redis.register_script(scripts.PUT)
        self._drop = self._redis.register_script(scripts.DROP)
        self._taking_back: set[asyncio.Task[None]] = set()
        self._put_in: dict[str, Keys] = {}  # by id: the lanes that a waiting call was put into
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._watch())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._redis.aclose()

    async def reachable(self) -> bool:
        try:
            return bool(await self._redis.ping())
        except RedisError:
            return False

    async def infer(
        self, id: str, model: Model, tenant: str, value: Any, params: Mapping[str, Any],
        timeout_ms: int,
    ) -> Answer:  # fmt: skip
        """Raises NoWorker, Overloaded, DeadlinePassed, and Unavailable where Redis lost the
        call. Cancelled, it takes the call back."""
        size = model.size(value, params)
        lane = lane_name(params, bucket_of(size, model.buckets))
        call = Call(id, lane, tenant, value, size, self._name)
        keys = Keys(model.key)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[id] = answer
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                arguments = put_arguments(
                    keys, call, target_ms=model.target_ms, timeout_ms=timeout_ms,
                    most=self._most_waiting, terms=Terms(),
                )  # fmt: skip
                _raise_refusal(refused(await self._put(keys.all(), arguments)), model)
                self._put_in[id] = keys
                return await answer
        except TimeoutError:
            raise DeadlinePassed(f"no answer within {timeout_ms} ms") from None
        finally:
            del self._waiting[id]
            self._put_in.pop(id, None)
            if not answer.done() or answer.cancelled():
                # Beside the request: Redis may be why there was no answer.
                task = asyncio.create_task(self._take_back(keys, call))
                self._taking_back.add(task)
                task.add_done_callback(self._taking_back.discard)

    async def _take_back(self, keys: Keys, call: Call) -> None:
        try:
            await self._drop(keys.all(), drop_arguments(keys, call))
        except RedisError as error:
            _log.warning("couldn't take back %s: %s", call.id, error)

    async def _read(self) -> None:
        """Hands replies to who awaits them, for as long as the process lives."""
        key = reply_key(self._name)
        while True:
            try:
                found: Any = await self._redis.blpop([key], timeout=_BLOCK_S)
            except RedisError as error:
                _log.warning("can't read replies: %s", error)
                await asyncio.sleep(_RETRY_S)
                continue
            for id, *answer in unpack_replies(found[1]) if found else ():
                future = self._waiting.get(id)
                if future is not None and not future.done():
                    future.set_result(tuple(answer))

    async def _watch(self) -> None:
        """Ends the wait for calls that Redis lost (it was flushed, or came back empty). A call
        that is unknown twice in a row was not answered in between either."""
        unknown: set[str] = set()
        while True:
            await asyncio.sleep(_WATCH_S)
            before = unknown
            try:
                unknown = await self._unknown()
            except RedisError:
                continue
            for id in before & unknown & self._waiting.keys():
                if not self._waiting[id].done():
                    lost = Unavailable("the call was lost with Redis; send it again")
                    self._waiting[id].set_exception(lost)

    async def _unknown(self) -> set[str]:
        """The waiting calls that Redis knows nothing of."""
        calls = list(self._put_in.items())
        pipe = self._redis.pipeline(transaction=False)
        for id, keys in calls:
            pipe.hexists(keys("calls"), id)
        known = await pipe.execute() if calls else []
        return {id for (id, _), there in zip(calls, known, strict=True) if not there}


def _raise_refusal(refusal: Refused | None, model: Model) -> None:
    if refusal is None:
        return
    if refusal.why == "no_worker":
        raise NoWorker(f"no worker is ready for {model.key}", retry_after_s=2)
    if refusal.why == "overloaded":
        raise Overloaded(f"too many calls wait for {model.key}", retry_after_s=1)
