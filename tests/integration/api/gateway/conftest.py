"""A stage for tests of the gateway."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from api.gateway.cluster.pipeline import open_pipeline
from api.gateway.gateway import CallGateway
from api.gateway.response_cache import ResponseCache
from jobs.models.model import Model
from jobs.models.registry import Registry
from ops.embedded.servers import EmbeddedServers
from tests.integration.api.gateway.stage import OnStage, Stage
from tests.support.wait import slowdown


@pytest.fixture
def on_stage(servers: EmbeddedServers, redis_client: "redis.Redis") -> OnStage:
    """Runs a test on an event loop of its own."""

    @asynccontextmanager
    async def stage(*models: Model, most: int) -> AsyncIterator[Stage]:
        gateway = CallGateway(servers.redis.url, most)
        gateway.start()
        pipe = open_pipeline(servers.redis.url, 5.0)
        responses = ResponseCache(servers.redis.url, 60.0)
        made = Stage(redis_client, gateway, Registry(list(models)), pipe, responses)
        try:
            yield made
        finally:
            for task in made.unanswered:
                task.cancel()
            await asyncio.gather(*made.unanswered, return_exceptions=True)
            await gateway.stop()
            await pipe.close()
            await responses.stop()

    def run(
        test: Callable[[Stage], Coroutine[Any, Any, None]], *models: Model, most: int = 50
    ) -> None:
        async def on() -> None:
            async with stage(*models, most=most) as made:
                await asyncio.wait_for(test(made), 20 * slowdown())

        asyncio.run(on())

    return run
