"""Hosts that are stopped after their test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests.integration.workers.generation.host_bench import Bench


@pytest.fixture
def hosted(redis_client: "redis.Redis") -> Iterator[Callable[..., Bench]]:
    """Makes a host, with options of its engine."""
    made: list[Bench] = []

    def make(**options: Any) -> Bench:
        made.append(Bench(redis_client, **options))
        return made[-1]

    yield make
    for bench in made:
        bench.stop()


@pytest.fixture
def started(hosted: Callable[..., Bench]) -> Callable[..., Bench]:
    """Makes a host, and starts it."""

    def make(**options: Any) -> Bench:
        bench = hosted(**options)
        bench.start()
        return bench

    return make
