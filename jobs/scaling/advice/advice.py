"""Advice to workers, in Redis. It lapses where no keeper renews it: workers then do as without."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from redis import Redis

KEY = "millrace:advice"
LASTS_S = 15.0
"""Time after which advice that was not renewed is gone."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice to all workers; models are named by name@version."""

    #: by incarnation, the models whose items a worker leaves to cheaper ones
    leave: Mapping[str, Collection[str]] = field(default_factory=dict)
    #: workers that a model should have, where that is more than have it
    replicas: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.leave or self.replicas)

    def write(self, redis: "Redis") -> None:
        """Publishes it, in place of what was there. Raises RedisError."""
        if self:
            leave = {worker: sorted(models) for worker, models in self.leave.items()}
            packed = orjson.dumps({**asdict(self), "leave": leave})
            redis.set(KEY, packed, px=round(LASTS_S * 1000))
        else:
            redis.delete(KEY)


def read(redis: "Redis") -> Advice:
    """Returns the advice of now; none from another release. Raises RedisError."""
    try:
        raw = orjson.loads(redis.get(KEY) or b"{}")
        return Advice(raw.get("leave", {}), raw.get("replicas", {}))
    except (ValueError, AttributeError):
        return Advice()
