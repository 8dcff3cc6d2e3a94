"""What the workers of each model version told of it, about a second ago: how long its launches
take, and whether one is ready."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import RedisError

from api.pipe import Pipe
from jobs import clock
from jobs.calls.admission import terms
from jobs.calls.lanes import Terms
from jobs.calls.profile import Profile
from jobs.calls.redis import Keys
from jobs.registry import Model

_PATIENCE_S = 0.25
"""For the first answer about a model: longer than that no call waits to know it."""
_FORGOTTEN_S = 60.0
"""A model that nobody asks for is looked at no longer."""

SHARES = {"interactive": 1.0, "standard": 0.75, "bulk": 0.5}
"""By class, how much of the time that may be waited is waited for a call, where lower classes are
shed."""


@dataclass(slots=True)
class Pool:
    """One model version as it was; without a profile nothing is known of its times."""

    keys: Keys
    names: Sequence[str]  # of all its keys
    profile: Profile = field(default_factory=Profile)
    ready: bool = False
    asked_s: float = 0.0
    _terms: dict[tuple[int, int, float], Terms] = field(default_factory=dict)

    def terms(self, model: Model, bucket: int, timeout_ms: int, share: float) -> Terms:
        """On which terms a call is let in."""
        kept = bucket, timeout_ms, share
        if kept not in self._terms:
            self._terms[kept] = terms(self.profile, model, bucket, timeout_ms, share)
        return self._terms[kept]


class Pools:
    """Those that calls were made for lately."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._known: dict[str, Pool] = {}

    async def of(self, model: Model) -> Pool:
        """Where Redis is silent: what is known without it."""
        pool = self._known.get(model.key) or await self._first_look(model.key)
        pool.asked_s = clock.monotonic()
        return pool

    async def choose(self, versions: Sequence[Model]) -> Model:
        """The first that has a ready worker; where none has, the first."""
        if len(versions) > 1:
            for model in versions:
                if (await self.of(model)).ready:
                    return model
        return versions[0]

    async def refresh(self) -> None:
        """Looks at all of them again. Raises RedisError."""
        forgotten_s = clock.monotonic() - _FORGOTTEN_S
        self._known = {key: pool for key, pool in self._known.items() if pool.asked_s > forgotten_s}
        await asyncio.gather(*map(self._look, self._known))

    async def _first_look(self, key: str) -> Pool:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self._look(key)
        except (RedisError, TimeoutError):
            return Pool(Keys(key), Keys(key).all())

    async def _look(self, key: str) -> Pool:
        keys = Keys(key)
        found: Any = await asyncio.gather(
            self._pipe.ask("HGET", keys("pool"), "profile"),
            self._pipe.ask("ZREVRANGE", keys("ready"), 0, 0, "WITHSCORES"),
            self._pipe.ask("TIME"),
        )
        packed, latest, (seconds, micros) = found
        now_ms = int(seconds) * 1000 + int(micros) / 1000
        ready = bool(latest) and float(latest[1]) > now_ms
        before = self._known.get(key)
        pool = Pool(
            keys,
            keys.all(),
            Profile.unpack(packed or b""),
            ready,
            before.asked_s if before else 0.0,
        )
        self._known[key] = pool
        return pool
