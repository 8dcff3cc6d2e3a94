"""Status of model versions as their workers reported it about a second ago: times of launches,
readiness."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import orjson
from redis.exceptions import RedisError

from api.gateway.redis_pipeline import Pipeline, PipelineScript
from jobs import clock
from jobs.calls import scripts
from jobs.calls.admission import Margin, due_ms, mixed_terms
from jobs.calls.keys import Keys
from jobs.calls.lanes import Terms
from jobs.calls.messages import Call
from jobs.calls.profile import Profile
from jobs.models.inputs.prefix import prefix_digest
from jobs.models.model import Model
from jobs.models.registry import Registry

_PATIENCE_S = 0.25  #: A call waits this long for the first look at its model.
_PATIENCE = 0.5  # share of the time to spare; the rest is for its lane, and its response
_LEAST_PATIENCE_S = 0.02  # an idle api begins each call sooner
_TIMEOUT_MS = 10_000  # a call's own, where it says nothing
_RECENT_S = 3.0  # looks are a second apart
_IDLE_S = 60.0  #: A model without calls is no longer refreshed after this time.

#: Share of the tolerable wait by class: lower classes are shed earlier.
SHARES = {"interactive": 1.0, "standard": 0.75, "bulk": 0.5}


@dataclass(slots=True)
class ModelStatus:
    """Status of one model version; with an empty profile its times are not known."""

    model: Model
    keys: Keys
    names: Sequence[str]  #: of all its Redis keys
    generates: bool  #: the model generates
    margin: Margin
    #: of each tier of its workers (jobs/calls/tiers/tier.py), the fastest first
    profiles: Sequence[Profile] = (Profile(),)
    ready: bool = False
    #: latest time at which a worker was known to load it, or to start its engine again
    loading_s: float = -inf
    last_used_s: float = 0.0  #: on the process's clock
    _terms: dict[tuple[int, int, float, int, str], Terms] = field(default_factory=dict)
    _due_ms: dict[tuple[int, int], int] = field(default_factory=dict)

    def terms(self, bucket: int, timeout_ms: int, share: float, tenant: str = "") -> Terms:
        """Returns the terms on which a call of a tenant is admitted; cached."""
        if not any(tenant in profile.behind_ms for profile in self.profiles):
            tenant = ""
        key = bucket, timeout_ms, share, int(self.margin.ms), tenant
        if key not in self._terms:
            self._terms[key] = mixed_terms(
                self.profiles, self.model, bucket, timeout_ms, share, self.margin.ms, tenant
            )
        return self._terms[key]

    @property
    def loading(self) -> bool:
        """True where a worker loads it, as of the latest look or a moment before."""
        return self.loading_s > clock.monotonic() - _RECENT_S

    def spare_ms(self) -> float:
        """Returns the longest time that a call may wait for its launch; inf: not known."""
        times = [self.terms(bucket, _TIMEOUT_MS, 1.0) for bucket in self.profiles[0].buckets]
        return max((its.allowed_ms - its.one_ms for its in times), default=inf)

    def names_for(self, call: Call) -> Sequence[str]:
        """Returns the keys with which a call of a model that generates is queued: also that of its
        beginning."""
        digest = prefix_digest(call.tenant, call.adapter, orjson.dumps(call.input))
        return self.names if digest is None else [*self.names, self.keys.prefix(digest)]

    def record_latency(self, bucket: int, timeout_ms: int, took_ms: float) -> None:
        """Adapts the margin to the time that an admitted call took."""
        key = bucket, timeout_ms
        if key not in self._due_ms:
            self._due_ms[key] = due_ms(self.profiles[0], self.model, bucket, timeout_ms)
        self.margin.record(late=took_ms > self._due_ms[key])


class ModelStatuses:
    """Status of the models that had calls lately."""

    def __init__(self, pipe: Pipeline, *, clustered: bool = False) -> None:
        self._pipe, self._clustered = pipe, clustered
        self._want = PipelineScript(pipe, scripts.WANT)
        self._profiles = PipelineScript(pipe, scripts.PROFILES)
        self._known: dict[str, ModelStatus] = {}
        #: longest time (s) that a call of any model which had calls lately may wait for its launch,
        #: about a second ago; inf: not known
        self.patience_s = inf

    async def get(self, model: Model) -> ModelStatus:
        """Returns a model's status; without Redis, an unknown one."""
        served = model.served_by
        status = self._known.get(served.key)
        # Its entry may have changed since; one that was read again is mostly the same.
        if status is None or (status.model is not served and status.model != served):
            status = await self._first_look(served)
        status.model, status.last_used_s = served, clock.monotonic()
        return status

    async def choose(self, versions: Sequence[Model]) -> Model:
        """Returns the first version that has a ready worker, else the first."""
        if len(versions) > 1:
            for model in versions:
                if (await self.get(model)).ready:
                    return model
        return versions[0]

    async def ready_keys(self, models: Registry) -> frozenset[str]:
        """Returns the versions (name@version) with a ready worker, of models that have several."""
        found = (model for name in models.ambiguous_names for model in models.versions(name))
        several = {model.served_by.key: model.served_by for model in found}
        return frozenset([key for key, one in several.items() if (await self.get(one)).ready])

    def want(self, model: Model) -> None:
        """Has a worker load a model that is loaded on demand, as a call does without a worker."""
        keys = Keys(model.served_by.key, self._clustered)
        self._want.send(_ignore_reply, keys.all(), [])

    def knows(self, key: str) -> bool:
        """Returns True for a model (name@version) that had calls lately."""
        return key in self._known

    def loading_s(self, key: str) -> float:
        """Returns `ModelStatus.loading_s` of a model (name@version), as far as it is known."""
        return self._known[key].loading_s if key in self._known else -inf

    async def refresh(self, waited_for: Collection[str] = ()) -> None:
        """Reads all of them again. waited_for: models (name@version) that have calls still. Raises
        RedisError."""
        idle_since_s = clock.monotonic() - _IDLE_S
        self._known = {
            key: status
            for key, status in self._known.items()
            if status.last_used_s > idle_since_s or key in waited_for
        }
        await asyncio.gather(*(self._look(status.model) for status in self._known.values()))
        spare_ms = max((status.spare_ms() for status in self._known.values()), default=inf)
        self.patience_s = max(_PATIENCE * spare_ms / 1000, _LEAST_PATIENCE_S)

    async def _first_look(self, model: Model) -> ModelStatus:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self._look(model)
        except (RedisError, TimeoutError):
            keys = Keys(model.key, self._clustered)
            return ModelStatus(model, keys, keys.all(), model.spec.generates, Margin(model))

    async def _look(self, model: Model) -> ModelStatus:
        keys = Keys(model.key, self._clustered)
        now_ms, ready_ms, packed, loading_ms = await self._profiles.ask(keys.all(), [])
        ready = float(ready_ms) > float(now_ms)
        profiles = [_profile(one) for one in packed] or [Profile()]
        before = self._known.get(model.key)
        margin = before.margin if before and before.model == model else Margin(model)
        last_used_s = before.last_used_s if before else 0.0
        loading_s = before.loading_s if before else -inf
        if float(loading_ms) > float(now_ms):
            loading_s = clock.monotonic()
        own = model, keys, keys.all(), model.spec.generates
        status = ModelStatus(*own, margin, profiles, ready, loading_s, last_used_s)
        self._known[model.key] = status
        return status


def _ignore_reply(reply: Any) -> None:
    """Ignores the reply: the next call asks again."""


def _profile(packed: bytes) -> Profile:
    """Unpacks a profile; one of another release that can't be read is empty."""
    try:
        return Profile.unpack(packed)
    except (ValueError, TypeError, LookupError, AttributeError):
        return Profile()
