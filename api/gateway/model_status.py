"""Status of model versions as their workers reported it about a second ago: times of launches,
readiness."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import RedisError

from api.gateway.redis_pipeline import Pipeline
from jobs import clock
from jobs.calls.admission import Margin, due_ms, terms
from jobs.calls.keys import Keys
from jobs.calls.lanes import Terms
from jobs.calls.profile import Profile
from jobs.models.model import Model
from jobs.models.registry import Registry

_PATIENCE_S = 0.25  #: A call waits this long for the first look at its model.
_IDLE_S = 60.0  #: A model without calls is no longer refreshed after this time.

#: Share of the tolerable wait by class: lower classes are shed earlier.
SHARES = {"interactive": 1.0, "standard": 0.75, "bulk": 0.5}


@dataclass(slots=True)
class ModelStatus:
    """Status of one model version; without a profile its times are not known."""

    model: Model
    keys: Keys
    names: Sequence[str]  #: of all its Redis keys
    margin: Margin
    profile: Profile = field(default_factory=Profile)
    ready: bool = False
    last_used_s: float = 0.0  #: on the process's clock
    _terms: dict[tuple[int, int, float, int], Terms] = field(default_factory=dict)
    _due_ms: dict[tuple[int, int], int] = field(default_factory=dict)

    def terms(self, bucket: int, timeout_ms: int, share: float) -> Terms:
        """Returns the terms on which a call is admitted; cached."""
        key = bucket, timeout_ms, share, int(self.margin.ms)
        if key not in self._terms:
            margin_ms = self.margin.ms
            self._terms[key] = terms(self.profile, self.model, bucket, timeout_ms, share, margin_ms)
        return self._terms[key]

    def record_latency(self, bucket: int, timeout_ms: int, took_ms: float) -> None:
        """Adapts the margin to the time that an admitted call took."""
        key = bucket, timeout_ms
        if key not in self._due_ms:
            self._due_ms[key] = due_ms(self.profile, self.model, bucket, timeout_ms)
        self.margin.record(late=took_ms > self._due_ms[key])


class ModelStatuses:
    """Status of the models that had calls lately."""

    def __init__(self, pipe: Pipeline, *, clustered: bool = False) -> None:
        self._pipe, self._clustered = pipe, clustered
        self._known: dict[str, ModelStatus] = {}

    async def get(self, model: Model) -> ModelStatus:
        """Returns a model's status; without Redis, an unknown one."""
        status = self._known.get(model.key) or await self._first_look(model)
        status.last_used_s = clock.monotonic()
        return status

    async def choose(self, versions: Sequence[Model]) -> Model:
        """Returns the first version that has a ready worker, else the first."""
        if len(versions) > 1:
            for model in versions:
                if (await self.get(model)).ready:
                    return model
        return versions[0]

    async def choose_all(self, models: Registry) -> dict[str, str]:
        """Returns the `name@version` that each bare name of several versions stands for now."""
        names = models.ambiguous_names
        return {name: (await self.choose(models.versions(name))).key for name in names}

    def knows(self, key: str) -> bool:
        """Returns True for a model (name@version) that had calls lately."""
        return key in self._known

    async def refresh(self) -> None:
        """Reads all of them again. Raises RedisError."""
        idle_since_s = clock.monotonic() - _IDLE_S
        self._known = {
            key: status for key, status in self._known.items() if status.last_used_s > idle_since_s
        }
        await asyncio.gather(*(self._look(status.model) for status in self._known.values()))

    async def _first_look(self, model: Model) -> ModelStatus:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self._look(model)
        except (RedisError, TimeoutError):
            keys = Keys(model.key, self._clustered)
            return ModelStatus(model, keys, keys.all(), Margin(model))

    async def _look(self, model: Model) -> ModelStatus:
        keys = Keys(model.key, self._clustered)
        replies: Any = await asyncio.gather(
            self._pipe.ask("HGET", keys("pool"), "profile"),
            self._pipe.ask("ZREVRANGE", keys("ready"), 0, 0, "WITHSCORES"),
            self._pipe.ask_at(keys("ready"), "TIME"),
        )
        packed, latest, (seconds, micros) = replies
        now_ms = int(seconds) * 1000 + int(micros) / 1000
        ready = bool(latest) and float(latest[1]) > now_ms
        profile = _profile(packed or b"")
        before = self._known.get(model.key)
        margin = before.margin if before and before.model == model else Margin(model)
        last_used_s = before.last_used_s if before else 0.0
        status = ModelStatus(model, keys, keys.all(), margin, profile, ready, last_used_s)
        self._known[model.key] = status
        return status


def _profile(packed: bytes) -> Profile:
    """Unpacks a profile; one of another release that can't be read is empty."""
    try:
        return Profile.unpack(packed)
    except (ValueError, TypeError, LookupError, AttributeError):
        return Profile()
