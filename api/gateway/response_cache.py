"""Responses of calls by Idempotency-Key, and the versions that took them, in Redis: a key makes one
call for as long as Redis lives."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError

from api import background
from api.gateway.cluster.pipeline import open_pipeline
from api.gateway.redis_pipeline import PipelineScript
from jobs import ids
from jobs.errors import DeadlinePassed, IdempotencyKeyInFlight, IdempotencyKeyReused
from jobs.intake.idempotency_key import Claim, kept_under, version_key

_log = logging.getLogger(__name__)
_TIMEOUT_S = 10
#: An api that died in a call leaves its key in flight this much longer than the call may take.
_MARGIN_MS = 2000
#: A response waits this long until it is stored, and an error until its key is free.
_SETTLE_WAIT_S = 0.5
#: Redis has this long to tell a version; what it doesn't tell, it won't when the key is claimed.
_VERSION_WAIT_S = 1.0
_IN_FLIGHT, _DONE = b"?", b"="

# KEYS: key. ARGV: mark, ttl ms. Returns the stored value.
_CLAIM = """
local stored = redis.call('GET', KEYS[1])
if not stored then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
return stored
"""

# KEYS: key. ARGV: mark, its replacement ('' to delete), ttl ms
_SETTLE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return end
if ARGV[2] == '' then redis.call('DEL', KEYS[1])
else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
"""


class ResponseCache:
    """Value of a key: `?`, the request's fingerprint and a unique mark while it is in flight; then
    `=`, the fingerprint and the response."""

    def __init__(self, redis_url: str, ttl_s: float) -> None:
        self._pipe = open_pipeline(redis_url, _TIMEOUT_S)
        self._ttl_ms = int(ttl_s * 1000)
        self._claim = PipelineScript(self._pipe, _CLAIM)
        self._settle = PipelineScript(self._pipe, _SETTLE)
        self._settling: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Waits for pending writes, and closes the connection."""
        await asyncio.gather(*self._settling)
        await self._pipe.close()

    async def once(
        self, claim: Claim, timeout_ms: int, call: Callable[[], Awaitable[bytes]]
    ) -> tuple[bytes, bool]:
        """Returns the response, and True if it was stored before. A call that raises frees its
        key.

        Raises IdempotencyKeyInFlight, IdempotencyKeyReused, DeadlinePassed where Redis takes
        longer than the call may, and what the call raises.
        """
        name = kept_under(claim.tenant, claim.key)
        mark = _IN_FLIGHT + claim.fingerprint + ids.new().bytes
        try:
            stored = await self._claim_key(name, mark, timeout_ms)
            answer = b"" if stored else await call()
        except BaseException:
            await self._replace(name, mark, b"")
            raise
        if stored:
            return _replay(stored, claim), True
        await self._replace(name, mark, _DONE + claim.fingerprint + answer)
        return answer, False

    async def version(self, tenant: str, key: str) -> str:
        """Returns what `keep_version` has kept; "": nothing, or Redis doesn't answer."""
        try:
            async with asyncio.timeout(_VERSION_WAIT_S):
                kept: bytes | None = await self._pipe.ask("GET", version_key(tenant, key))
        except (RedisError, TimeoutError):
            return ""
        return (kept or b"").decode()

    def keep_version(self, tenant: str, key: str, version: str) -> None:
        """Keeps the version that takes a call, for its retries."""
        name = version_key(tenant, key)
        self._pipe.send(_ignore_reply, "SET", name, version, "PX", self._ttl_ms)

    async def _claim_key(self, name: str, mark: bytes, timeout_ms: int) -> bytes | None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                stored: bytes | None = await self._claim.ask(
                    [name], [mark, timeout_ms + _MARGIN_MS]
                )
                return stored
        except TimeoutError:
            raise DeadlinePassed(f"no answer within {timeout_ms} ms") from None

    async def _replace(self, name: str, mark: bytes, value: bytes) -> None:
        """Goes on in the background where it takes long: Redis may be why there was no response."""
        task = background.spawn("response", self._write(name, mark, value))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        await asyncio.wait({task}, timeout=_SETTLE_WAIT_S)

    async def _write(self, name: str, mark: bytes, value: bytes) -> None:
        try:
            await self._settle.ask([name], [mark, value, self._ttl_ms])
        except RedisError as error:
            _log.warning("couldn't keep or free an Idempotency-Key: %s", error)


def _ignore_reply(reply: Any) -> None:
    """Ignores the reply: without it a retry is routed anew."""


def _replay(stored: bytes, claim: Claim) -> bytes:
    head = 1 + len(claim.fingerprint)
    if stored[1:head] != claim.fingerprint:
        raise IdempotencyKeyReused
    if stored[:1] == _IN_FLIGHT:
        raise IdempotencyKeyInFlight
    return stored[head:]
