"""A host that is stopped after its test."""

from collections.abc import Iterator

import pytest
import redis

from tests.integration.workers.device.host_bench import Bench


@pytest.fixture
def bench(redis_client: "redis.Redis") -> Iterator[Bench]:
    bench = Bench(redis_client)
    yield bench
    bench.stop()
