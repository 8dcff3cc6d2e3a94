"""A stage for tests of the gateway."""

from collections.abc import AsyncIterator

import pytest
import redis

from ops.embedded.servers import EmbeddedServers
from tests.integration.api.gateway.stage import Stage, on_stage


@pytest.fixture
def most() -> int:
    """Calls that may wait for a model."""
    return 50


@pytest.fixture
async def stage(
    servers: EmbeddedServers, redis_client: "redis.Redis", most: int
) -> AsyncIterator[Stage]:
    async with on_stage(servers.redis.url, redis_client, most=most) as made:
        yield made
