"""What the workers of each model version told of it, about a second ago: how long its launches
take, and whether one is ready."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import RedisError

from api.gateway.redis_pipeline import RedisPipeline
from jobs import clock
from jobs.calls.admission import Margin, due_ms, terms
from jobs.calls.lanes import Terms
from jobs.calls.profile import Profile
from jobs.calls.redis import Keys
from jobs.models.model import Model

_PATIENCE_S = 0.25
"""For the first answer about a model: longer than that no call waits to know it."""
_FORGOTTEN_S = 60.0
"""A model that nobody asks for is looked at no longer."""

SHARES = {"interactive": 1.0, "standard": 0.75, "bulk": 0.5}
"""By class, how much of the time that may be waited is waited for a call, where lower classes are
shed."""


@dataclass(slots=True)
class ModelStatus:
    """One model version as it was; without a profile nothing is known of its times."""

    model: Model
    keys: Keys
    names: Sequence[str]  # of all its keys
    margin: Margin
    profile: Profile = field(default_factory=Profile)
    ready: bool = False
    asked_s: float = 0.0
    _terms: dict[tuple[int, int, float, int], Terms] = field(default_factory=dict)

    def terms(self, bucket: int, timeout_ms: int, share: float) -> Terms:
        """On which terms a call is let in."""
        kept = bucket, timeout_ms, share, int(self.margin.ms)
        if kept not in self._terms:
            margin_ms = self.margin.ms
            self._terms[kept] = terms(
                self.profile, self.model, bucket, timeout_ms, share, margin_ms
            )
        return self._terms[kept]

    def answered(self, bucket: int, timeout_ms: int, took_ms: float) -> None:
        """A call that was let in had its answer after so long."""
        due = due_ms(self.profile, self.model, bucket, timeout_ms)
        self.margin.note(late=took_ms > due)


class ModelStatuses:
    """Those that calls were made for lately."""

    def __init__(self, pipe: RedisPipeline) -> None:
        self._pipe = pipe
        self._known: dict[str, ModelStatus] = {}

    async def of(self, model: Model) -> ModelStatus:
        """Where Redis is silent: what is known without it."""
        pool = self._known.get(model.key) or await self._first_look(model)
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
        await asyncio.gather(*(self._look(pool.model) for pool in self._known.values()))

    async def _first_look(self, model: Model) -> ModelStatus:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self._look(model)
        except (RedisError, TimeoutError):
            keys = Keys(model.key)
            return ModelStatus(model, keys, keys.all(), Margin(model))

    async def _look(self, model: Model) -> ModelStatus:
        keys = Keys(model.key)
        found: Any = await asyncio.gather(
            self._pipe.ask("HGET", keys("pool"), "profile"),
            self._pipe.ask("ZREVRANGE", keys("ready"), 0, 0, "WITHSCORES"),
            self._pipe.ask("TIME"),
        )
        packed, latest, (seconds, micros) = found
        now_ms = int(seconds) * 1000 + int(micros) / 1000
        ready = bool(latest) and float(latest[1]) > now_ms
        profile = _profile(packed or b"")
        before = self._known.get(model.key)
        margin = before.margin if before and before.model == model else Margin(model)
        asked_s = before.asked_s if before else 0.0
        pool = ModelStatus(model, keys, keys.all(), margin, profile, ready, asked_s)
        self._known[model.key] = pool
        return pool


def _profile(packed: bytes) -> Profile:
    """Of a worker that may be of another release: what can't be read is not known."""
    try:
        return Profile.unpack(packed)
    except (ValueError, TypeError, LookupError, AttributeError):
        return Profile()
