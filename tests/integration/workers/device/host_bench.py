"""A host with calls from a real Redis and items of slices made by hand."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import redis

from jobs import ids
from jobs.calls.keys import reply_key
from jobs.calls.lanes import Terms, lane_name
from jobs.calls.messages import Call, unpack_replies
from jobs.calls.redis import RedisLanes
from jobs.models.model import Limits, Model
from jobs.store.queue.claim import Lease
from tests.support.wait import eventually
from workers.device.call_puller import CallPuller
from workers.device.health import DeviceHealth
from workers.device.model_host import ModelHost
from workers.device.monitoring.rollout_records import RecordStreams
from workers.engines.function import FunctionEngine
from workers.items.in_flight import ClaimedBatch, InFlightSlice
from workers.scheduler.cost import LaunchSize
from workers.scheduler.entries import Launch
from workers.scheduler.policy import Flush

MODEL = Model("shout", "1", "function", limits=Limits(max_batch=100, window_ms=60_000))
HOUR_S = 3600.0


class Shout(FunctionEngine):
    """Upper-cases texts, and remembers its launches. "broken" breaks the launch it is in."""

    def __init__(self) -> None:
        super().__init__("builtins:list")
        self.launches: list[list[str]] = []

    def run(self, batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        self.launches.append(list(batch))
        if "broken" in batch:
            raise RuntimeError("one of them is broken \ud800")
        return [text.upper() for text in batch]


class Bench:
    """A host with an engine that records its launches."""

    def __init__(
        self, client: "redis.Redis", engine: Shout | None = None, model: Model = MODEL
    ) -> None:
        self.engine = engine or Shout()
        self.launches: list[Launch] = []
        self.lanes = RedisLanes(client, MODEL.key)
        calls = CallPuller(self.lanes, "worker-1", HOUR_S, model.limits.in_flight)
        self.health = DeviceHealth()
        self.host = ModelHost(
            model, self.engine, calls, self._note, health=self.health, records=RecordStreams(client)
        )
        self.host.announce()
        self._client, self._started = client, False

    def _note(self, model: Model, launch: Launch) -> int:
        self.launches.append(launch)
        return len(self.launches)

    def call(
        self, id: str, value: Any, tenant: str = "tenant", cohort: str = "", **params: Any
    ) -> None:
        lane = lane_name(params, 0, cohort)
        call = Call(id, lane, tenant, value, 1, "api-1", cohort=cohort)
        bounds = {"target_ms": 10_000, "timeout_ms": 60_000, "most": 10}
        assert self.lanes.put(call, **bounds, terms=Terms()) is None

    def replies(self, count: int = 1) -> dict[str, tuple[Any, Any]]:
        """(output, error) by call, once there are so many, in however many messages."""
        found: dict[str, tuple[Any, Any]] = {}
        while len(found) < count:
            packed = eventually(lambda: self._client.lpop(reply_key("api-1")))
            for id, output, error, *_ in unpack_replies(packed):
                found[id] = output and orjson.loads(output), error
        return found

    def slices(
        self, *texts: Sequence[Any], params: Sequence[Mapping[str, Any]] = ()
    ) -> list[InFlightSlice]:
        """Slices of as many jobs, queued."""
        slices = leased(*map(len, texts))
        for in_flight, inputs, own in zip(slices, texts, params or [{}] * len(texts), strict=True):
            in_flight.expect(len(inputs))
            self.host.submit([in_flight] * len(inputs), range(len(inputs)), inputs, own)
        return slices

    def lose_calls(self) -> None:
        """Another worker takes all calls that wait, and dies."""
        dead = CallPuller(self.lanes, "worker-2", 1)
        self.take_by(dead)
        dead.announce(alive=False)
        assert self.lanes.recover()

    def take_by(self, puller: CallPuller) -> None:
        """Another worker takes all the calls that wait."""
        waiting = puller.look("worker-2/0")
        flush = Flush(waiting.lanes[0], 100, 0, "pace")
        ticket = self.host.scheduler.ticket(0.0, flush, waiting, puller.worker, "worker-2/0", 1)
        assert puller.take(ticket, waiting)

    def start(self) -> None:
        self._started = True
        self.host.start()

    def stop(self) -> None:
        if self._started:
            self.host.stop()

    def expect_launches_of(self, seconds: float) -> None:
        """Every launch is taken to last so long: the knee is 90 of 100 rows, so items wait."""
        self.host.scheduler.latency.observe(LaunchSize.alike(1, 1), seconds)


def leased(*sizes: int) -> list[InFlightSlice]:
    """Slices of as many jobs, claimed."""
    leases = [Lease(ids.new(), 0, size, 1, "tenant", MODEL.key, "{}") for size in sizes]
    return list(ClaimedBatch(leases).slices)


def ends(in_flight: InFlightSlice) -> dict[int, Any]:
    """Returns the items' outputs by seq, once all of them have ended."""
    eventually(lambda: in_flight.finished)
    found = {outcome.seq: outcome.output for outcome in in_flight.outcomes}
    assert len(found) == len(in_flight.outcomes)
    return found
