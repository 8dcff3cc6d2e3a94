"""The models that one worker serves now: who they are, and what Redis hears of them."""

import threading
from collections.abc import Callable

from redis import Redis

from jobs.calls import redis as call_redis
from jobs.models.model import Model
from jobs.settings import Settings
from workers.device.call_puller import CallPuller
from workers.device.model_host import CLAIMS_IN_HAND, ModelHost
from workers.device.monitoring import device_info
from workers.device.monitoring.utilization import Utilization
from workers.device.monitoring.watchdog import LaunchDeadline
from workers.engines.protocol import Engine
from workers.scheduler.entries import Launch


class HostTable:
    """by_key: those that are served, by name@version; anybody may look, they change here alone.
    claims: as many may wait for their slices at a time, over all models."""

    def __init__(
        self,
        settings: Settings,
        incarnation: int,
        redis: "Redis",
        progress: LaunchDeadline,
        claims: int = CLAIMS_IN_HAND,
    ) -> None:
        self._settings, self.incarnation = settings, incarnation
        self._redis, self._progress, self._claims = redis, progress, claims
        self.busy = Utilization(device_info.name_of(settings))
        self.by_key: dict[str, ModelHost] = {}
        self._draining = self._stopped = False
        self._changing = threading.Lock()
        self._announcing = threading.Lock()

    def make(
        self, model: Model, engine: Engine, on_launch: Callable[[Model, Launch], int]
    ) -> ModelHost:
        """One that is not served yet."""
        lanes = call_redis.RedisLanes(self._redis, model.key)
        slots = model.limits.in_flight
        calls = CallPuller(lanes, str(self.incarnation), self._settings.lease_s, slots)
        return ModelHost(model, engine, calls, on_launch, self._progress, self.busy)

    def enter(self, host: ModelHost) -> bool:
        """It takes calls and items from now on; False: too late, the worker leaves."""
        with self._changing:
            if self._draining:
                return False
            host.start()
            self.by_key[host.model.key] = host
            self._share_claims()
        self.announce(host)
        return True

    def leave(self, host: ModelHost) -> None:
        """Ends it after the launches that it is in; until then it is there for their calls."""
        host.stop()
        with self._changing:
            del self.by_key[host.model.key]
            self._share_claims()
        with self._announcing:
            host.announce(ready=False, alive=False)

    def drain(self) -> None:
        """Nobody takes more, nobody comes."""
        with self._changing:
            self._draining = True
            for host in self.by_key.values():
                host.drain()
        self.announce_all()

    def stop(self) -> None:
        """After `drain`: ends them all."""
        for host in list(self.by_key.values()):
            host.stop()
        self._stopped = True
        self.announce_all()

    def announce(self, host: ModelHost) -> None:
        """A model that drains is there for the calls that it has in hand, until the last of them
        is answered."""
        with self._announcing:
            if self.by_key.get(host.model.key) is host:  # not one that came after it
                host.announce(ready=not host.draining, alive=not self._stopped)

    def announce_all(self) -> None:
        for host in list(self.by_key.values()):
            self.announce(host)

    def _share_claims(self) -> None:
        """A claim keeps its thread until its slices end: no model may take those of another."""
        for host in self.by_key.values():
            host.most_claims = min(CLAIMS_IN_HAND, max(1, self._claims // len(self.by_key)))
