"""Two hosts of one model whose launches take 20 and 300 ms, with calls from a real Redis."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import redis

from jobs.calls.keys import reply_key
from jobs.calls.lanes import Terms, lane_name
from jobs.calls.messages import Call, unpack_replies
from jobs.calls.redis import RedisLanes
from jobs.models.model import Model
from tests.integration.workers.device.host_bench import HOUR_S, MODEL, Shout
from tests.support.wait import eventually
from workers.device.call_puller import CallPuller
from workers.device.model_host import ModelHost
from workers.scheduler.cost import LaunchSize


class Pair:
    """A fast host and a slow one, each with an engine that remembers its launches."""

    def __init__(self, client: "redis.Redis", model: Model, slow_price: float = 1.0) -> None:
        self._client, self.lanes = client, RedisLanes(client, model.key)
        self._model, self._calls = model, 0
        self.fast, self.fast_engine = self._host("fast", 0.02, 1.0)
        self.slow, self.slow_engine = self._host("slow", 0.3, slow_price)
        for host in self.hosts:
            host.start()

    @property
    def hosts(self) -> list[ModelHost]:
        return [self.fast, self.slow]

    def _host(self, name: str, launch_s: float, price: float) -> tuple[ModelHost, Shout]:
        engine = Shout()
        puller = CallPuller(self.lanes, name, HOUR_S, price=price)
        host = ModelHost(self._model, engine, puller, lambda *_: 1)
        host.scheduler.latency.seed([(LaunchSize.alike(rows, 1), launch_s) for rows in (1, 100)])
        host.announce()
        return host, engine

    def call(self) -> str:
        """Sends a call; returns its output."""
        self._calls += 1
        call = Call(f"call-{self._calls}", lane_name({}, 0), "tenant", "a", 1, "api-1")
        bounds = {"target_ms": self._model.target_ms, "timeout_ms": 60_000, "most": 10}
        assert self.lanes.put(call, **bounds, terms=Terms()) is None
        packed = eventually(lambda: self._client.lpop(reply_key("api-1")))
        [(id, output, error, *_)] = unpack_replies(packed)
        assert (id, error) == (call.id, None)
        return str(output)

    def launches(self) -> tuple[int, int]:
        """Launches of the fast host, and of the slow one."""
        return len(self.fast_engine.launches), len(self.slow_engine.launches)

    def stop(self) -> None:
        for host in self.hosts:
            host.stop()


@pytest.fixture
def pair(redis_client: "redis.Redis") -> Iterator[Pair]:
    pair = Pair(redis_client, MODEL)
    yield pair
    pair.stop()


def test_calls_go_to_the_host_that_answers_them_in_time(pair: Pair) -> None:
    for _ in range(20):
        pair.call()
    assert pair.launches() == (20, 0)


def test_the_slow_host_serves_once_the_fast_one_takes_no_calls(pair: Pair) -> None:
    pair.call()
    pair.fast.stop()
    pair.fast.announce(ready=False)
    for _ in range(3):
        pair.call()
    assert pair.launches() == (1, 3)


def test_calls_go_to_the_cheaper_host_where_it_is_in_time(redis_client: "redis.Redis") -> None:
    pair = Pair(redis_client, replace(MODEL, target_ms=20_000), slow_price=0.01)
    try:
        for _ in range(5):
            pair.call()
        assert pair.launches() == (0, 5)
    finally:
        pair.stop()
