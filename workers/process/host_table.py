"""Table of the models that one worker serves now, and their announcements in Redis."""

import logging
import threading
from collections.abc import Mapping

from redis import Redis, RedisError

from jobs.calls.redis import RedisLanes
from jobs.models.adapters import Adapter, RefusedAdapter
from jobs.models.model import Model
from jobs.models.registry import Registry
from jobs.scaling.advice import advice
from jobs.scaling.advice.advice import Advice
from jobs.settings import Settings
from workers.device.adapters.claim_view import AdapterHost
from workers.device.call_puller import CallPuller, LookPace
from workers.device.claim_capacity import CLAIMS_IN_FLIGHT
from workers.device.delivery import OnLaunch
from workers.device.health import DeviceHealth
from workers.device.host import ClaimHost, Host
from workers.device.model_host import ModelHost
from workers.device.monitoring import device_info
from workers.device.monitoring.rollout_records import RecordStreams
from workers.device.monitoring.utilization import Utilization
from workers.device.monitoring.watchdog import LaunchDeadline
from workers.engines.generator import Generator
from workers.engines.protocol import Engine
from workers.generation.host import GenerationHost

_log = logging.getLogger(__name__)


class HostTable:
    """Hosts of one worker. Any thread may read `by_key`; hosts are added and removed here alone."""

    def __init__(
        self,
        settings: Settings,
        incarnation: int,
        redis: "Redis",
        deadline: LaunchDeadline,
        max_claims: int = CLAIMS_IN_FLIGHT,
        health: DeviceHealth | None = None,
    ) -> None:
        self._settings, self.incarnation = settings, incarnation
        self._redis, self._deadline = redis, deadline
        self._records = RecordStreams(redis)
        self._max_claims = max_claims  # over all models: each claim keeps a thread
        self.utilization = Utilization(device_info.device_name(settings))
        self.health = health or DeviceHealth()
        self.by_key: dict[str, Host] = {}  # by name@version
        self._replicas: Mapping[str, int] = {}
        self.claiming: dict[str, ClaimHost] = {}  #: these and their adapters, by name@version
        self._declared: Registry = Registry([])
        self.pace = LookPace()  #: of looks for calls, shared by all models
        self._draining = self._stopped = False
        self._changing = threading.Lock()
        self._announcing = threading.Lock()

    def create(self, model: Model, engine: Engine | Generator, on_launch: OnLaunch) -> Host:
        """Creates the host of a loaded model, without adding it: the one place that chooses its
        class. on_launch: records each launch that has items."""
        lanes = RedisLanes(self._redis, model.key)
        slots = 1 if isinstance(engine, Generator) else model.limits.in_flight
        worker, lease_s = str(self.incarnation), self._settings.lease_s
        shared_pace = self.pace, self._settings.price
        spot = self._settings.spot_notice_s > 0
        calls = CallPuller(lanes, worker, lease_s, slots, *shared_pace, spot=spot)
        shared = self._deadline, self.utilization
        if isinstance(engine, Generator):
            return GenerationHost(model, engine, calls, *shared, self._records)
        return ModelHost(model, engine, calls, on_launch, *shared, self.health, self._records)

    def add(self, host: Host) -> bool:
        """Starts a host, for calls and items. Returns False if the worker drains."""
        with self._changing:
            if self._draining:
                return False
            host.start()
            self.by_key[host.model.key] = self.claiming[host.model.key] = host
            self._add_adapters(host, {})
            self._share_claims()
        self.announce(host)
        return True

    def remove(self, host: Host) -> None:
        """Stops a host after its launches in flight; it stays announced until they have ended."""
        host.stop()
        with self._changing:
            del self.by_key[host.model.key]
            for key, one in list(self.claiming.items()):
                if one.capacity is host.capacity:
                    del self.claiming[key]
            self._share_claims()
        with self._announcing:
            host.announce(ready=False, alive=False)

    def declare(self, models: Registry) -> None:
        """Takes the models that are declared now."""
        with self._changing:
            self._declared = models

    def add_adapters(self, key: str, staged: Mapping[str, Adapter]) -> None:
        """Takes new adapters of a version. One that is declared no more serves as long as its host
        does: it may have jobs. staged: those whose files lie in artifacts, by own name."""
        with self._changing:
            if host := self.by_key.get(key):
                self._add_adapters(host, staged)

    def _add_adapters(self, host: Host, staged: Mapping[str, Adapter]) -> None:
        staged = {one.name: one for one in host.model.adapters} | dict(staged)
        for name, model in self._declared.adapters_of(host.model.key).items():
            adapter, known = staged.get(name, model.adapter), host.adapters.get(name)
            if adapter.needs_staging or not (known is None or isinstance(known, RefusedAdapter)):
                continue
            host.adapters[name] = adapter
            self.claiming[model.key] = AdapterHost(host, model)

    def drain(self) -> None:
        """Drains all hosts, and adds no more."""
        with self._changing:
            self._draining = True
            for host in self.by_key.values():
                host.drain()
        self.announce_all()

    def stop(self) -> None:
        """Stops all hosts, after `drain`."""
        for host in list(self.by_key.values()):
            host.stop()
        self._stopped = True
        self.announce_all()

    def announce(self, host: Host) -> None:
        """Announces a host for another lease. A draining one isn't ready, but stays alive for the
        calls that it has taken."""
        with self._announcing:
            if self.by_key.get(host.model.key) is host:  # not replaced meanwhile
                host.announce(ready=not host.draining, alive=not self._stopped)

    def announce_all(self) -> None:
        """Announces all hosts for another lease."""
        for host in list(self.by_key.values()):
            self.announce(host)

    def follow_advice(self) -> None:
        """Takes the advice of keepers: which items are left to cheaper workers, and how many
        workers models should have. There is none once Redis is away."""
        try:
            given = advice.read(self._redis)
        except RedisError as error:
            _log.debug("advice can't be read: %s", error)
            given = Advice()
        self._replicas = given.replicas
        leave = given.leave.get(str(self.incarnation), ())
        for host in list(self.by_key.values()):
            host.capacity.leaves_items = host.model.key in leave

    def take_replicas(self) -> Mapping[str, int]:
        """Returns `Advice.replicas`, once for each time that advice came."""
        taken, self._replicas = self._replicas, {}
        return taken

    def _share_claims(self) -> None:
        """Shares out the threads for claims and the looks for calls: no model may take those of
        another."""
        self.pace.models = len(self.by_key)
        for host in self.by_key.values():
            share = max(1, self._max_claims // len(self.by_key))
            host.capacity.max_claims = min(CLAIMS_IN_FLIGHT, share)
