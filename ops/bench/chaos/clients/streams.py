"""Clients of streams of a model that generates: each reads one to its end, at any api that goes on
with it, checks it, and asks for the next."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from threading import Event
from typing import Any

import httpx
from redis.asyncio import Redis
from redis.exceptions import RedisError

from jobs.calls.clients.sentinel import async_master_pool, is_sentinel
from ops.bench.chaos.clients.client import Ledger
from ops.bench.chaos.clients.workload import CHAT, generation_input, words
from ops.bench.harness.errors import BenchError
from ops.bench.load.streams.reader import ReadStream, StreamRequest, read

_AT_ONCE = 4
_TOKENS = 120
_PAUSE_S = 1.0
_TIMEOUT_S = 20.0
_CANARY_S = 3600
_REDIS_RETRY_S, _REDIS_TRIES = 0.5, 240
_MOST_TRIES = 600  # servers are away for longer than a client of a bench would wait

#: Codes that a stream may end with where Redis lost it, and with it what a client resumes (404).
_LOST_WITH_REDIS = frozenset({"unavailable", "404"})
#: Codes that it may end with in any case: two workers died, and it had no new token in between.
_ALLOWED = frozenset({"worker_lost"})


@dataclass
class StreamTally:
    """Counts of streams that were read."""

    streams: int = 0
    resumed: int = 0  #: read over more than one connection
    errors: Counter[str] = field(default_factory=Counter)  #: ended with an error, by its code
    lost_with_redis: int = 0  #: of those, ended since Redis lost what it had
    tokens: int = 0
    lost: int = 0  #: tokens
    repeated: int = 0  #: tokens
    wrong: int = 0  #: with another text or bill, or an error that nothing explains


class StreamClients:
    """A few clients in one thread. troubles: gets the descriptions of what is wrong."""

    def __init__(
        self, ports: list[int], redis_url: str, seed: int, ledger: Ledger, troubles: list[str]
    ) -> None:
        self._urls = [f"http://127.0.0.1:{port}" for port in ports]
        self._redis_url, self._seed = redis_url, seed
        self._ledger, self._troubles = ledger, troubles
        self.tally = StreamTally()

    def run(self, closing: Event) -> None:
        """Reads streams until it is closing, and those that are open then to their ends."""
        asyncio.run(self._run(closing))

    async def _run(self, closing: Event) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        redis = _connect(self._redis_url)
        async with httpx.AsyncClient(timeout=_TIMEOUT_S, limits=limits, trust_env=False) as http:
            numbers = range(_AT_ONCE)
            await asyncio.gather(*(self._read_streams(http, redis, n, closing) for n in numbers))
        await redis.aclose()

    async def _read_streams(
        self, http: httpx.AsyncClient, redis: Redis, number: int, closing: Event
    ) -> None:
        dice, count = Random(f"{self._seed}/stream/{number}"), 0
        while not closing.is_set():
            count += 1
            text = words(f"{self._seed}-stream-{number}-{count}", _TOKENS)
            limits = {"first_token_ms": 300_000, "idle_ms": 120_000}
            body = {"model": CHAT, "input": generation_input(text), "stream": True, **limits}
            urls = dice.sample(self._urls, len(self._urls))
            canary = f"chaos:stream:{number}-{count}"
            await _answered(partial(_sing, redis, canary))
            stream = await read(http, urls, StreamRequest(CHAT, body), _MOST_TRIES)
            redis_lost = bool(stream.error) and not await _answered(partial(_sings, redis, canary))
            judge(stream, text, redis_lost, self.tally, self._troubles)
            if stream.error:
                what = {"call": stream.call_id, "tokens": len(stream.tokens.get(0, ()))}
                self._ledger.write("stream", **what, redis_lost=redis_lost, error=stream.error)
            await asyncio.sleep(dice.uniform(0, _PAUSE_S))


def _connect(url: str) -> Redis:
    if is_sentinel(url):
        return Redis(connection_pool=async_master_pool(f"{url}&socket_timeout=2", 2))
    return Redis.from_url(url, socket_timeout=2)


# A Redis loses all that it has, or nothing; its replica may lack what was written last.
async def _sing(redis: Redis, canary: str) -> None:
    await redis.set(canary, await _server(redis), ex=_CANARY_S)


async def _sings(redis: Redis, canary: str) -> bool:
    """Returns True if the server that had the canary is the master, and has it still."""
    return bool(await redis.get(canary) == await _server(redis))


async def _server(redis: Redis) -> bytes:
    return str((await redis.info("server"))["run_id"]).encode()


async def _answered(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Asks Redis until it answers: it may be away, full or starved."""
    for _ in range(_REDIS_TRIES):
        with suppress(RedisError, OSError):
            return await ask()
        await asyncio.sleep(_REDIS_RETRY_S)
    raise BenchError("Redis gave no answer")


def judge(
    stream: ReadStream, text: str, redis_lost: bool, tally: StreamTally, troubles: list[str]
) -> None:
    """Counts a stream that has ended. What came must be the text; all of it, where it ended without
    an error. redis_lost: Redis lost what it had since the stream began."""
    found, code = stream.text.get(0, ""), stream.error.partition(":")[0]
    tokens = len(stream.tokens.get(0, ()))
    tally.streams += 1
    tally.resumed += stream.connections > 1
    tally.tokens += tokens
    tally.lost += stream.lost
    tally.repeated += stream.repeated
    if stream.ended:
        count = len(text.split())
        billed = (stream.usage.get("prompt_tokens"), stream.usage.get("completion_tokens"))
        right = found == text and tokens == count and billed == (count, count)
    else:
        tally.errors[code] += 1
        said_by_redis = redis_lost and code in _LOST_WITH_REDIS
        tally.lost_with_redis += said_by_redis
        right = (said_by_redis or code in _ALLOWED) and text.startswith(found)
    tally.wrong += not right
    if not right or stream.lost or stream.repeated:
        said = f"{tokens} tokens, {stream.lost} lost, {stream.repeated} repeated, {stream.usage}"
        troubles.append(f"stream {stream.call_id}: {said}, {stream.error!r}: {found!r}")
