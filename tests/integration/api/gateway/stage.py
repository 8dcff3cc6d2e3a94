"""A gateway on a real Redis, with workers that only say how long they take."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import redis

from api.gateway.cluster.pipeline import open_pipeline
from api.gateway.fallbacks import FallbackPlan, fallback_plans
from api.gateway.gateway import CallGateway
from api.gateway.model_status import SHARES
from api.gateway.redis_pipeline import Pipeline
from api.gateway.requests import InferenceRequest, InferenceResult
from api.gateway.response_cache import ResponseCache
from api.gateway.routing.target import Target
from jobs import clock, ids
from jobs.calls.lanes import Ticket
from jobs.calls.messages import Call, Reply
from jobs.calls.profile import Profile, Times
from jobs.calls.redis import RedisLanes
from jobs.identity import Limit
from jobs.models.model import Model
from jobs.models.registry import Registry
from tests.support.wait import PATIENCE_S, eventually_async

LONG = "one two three four five six seven eight nine ten"  # 12 tokens: in the bucket of 16
FAST, SLOW = Times(8, 20, 10), Times(8, 400, 300)
LEASE_S = 30.0
Answer = Coroutine[Any, Any, tuple[FallbackPlan, InferenceResult]]

OLD = Model("m", "1", "minilm", target_ms=200)
NEW = Model("m", "2", "minilm", target_ms=200)


@dataclass
class Stage:
    """A gateway, and lanes as workers see them."""

    redis: "redis.Redis"
    gateway: CallGateway
    models: Registry
    pipe: Pipeline
    responses: ResponseCache
    gone: "asyncio.Future[None]" = field(default_factory=asyncio.Future)
    unanswered: list["asyncio.Task[Any]"] = field(default_factory=list)

    def serve(self, *models: Model) -> None:
        self.models = Registry(list(models))

    def open(self, *models: Model, **buckets: Times) -> None:
        """Serves models, each with a worker that is ready."""
        self.serve(*models)
        for model in models:
            self.ready(model, **buckets)

    def lanes(self, model: Model) -> RedisLanes:
        return RedisLanes(self.redis, model.key)

    def take(self, model: Model, lane: str = "", needs_ms: float = 0) -> list[Call]:
        """Takes calls of a lane, or of the first one. needs_ms: for their launch."""
        lanes = self.lanes(model)
        state = lanes.look("s")
        lane = lane or state.lanes[0].lane
        lease_ms = LEASE_S * 1000
        ticket = Ticket(lane, 8, 0, state.now_ms, 1, needs_ms, "pace", "w", "s", lease_ms)
        return lanes.take(ticket) or []

    def ready(self, model: Model, **buckets: Times) -> None:
        """A worker of the model says how long launches of its buckets take: b16 = …"""
        profile = Profile(0.0, {int(name[1:]): times for name, times in buckets.items()})
        lanes = self.lanes(model)
        lanes.announce("w", LEASE_S, profile=profile.pack())
        # It has just launched: a pool that hasn't for long would be probed.
        before_ms = lanes.look("w/0").last_launch_ms
        lanes.take(Ticket("", 0, 0, before_ms, 0.0, 0.0, "pace", "w", "w/0", LEASE_S))

    def call(
        self, model: Model, value: Any = LONG, *, timeout_ms: int = 60_000, of: str = "interactive",
        limits: tuple[Limit, ...] = (), cohort: str = "", waited_s: float = -60.0,
    ) -> Answer:  # fmt: skip
        """waited_s: time since it was read; without it none passes, however slow the test is."""
        asked = InferenceRequest(
            ids.show("call", ids.new()), "t", value, SHARES[of], "standard", 1.0, timeout_ms,
            clock.monotonic() + timeout_ms / 1000, self.gone, clock.monotonic() - waited_s, limits,
        )  # fmt: skip
        plans = fallback_plans(self.models, Target(model, cohort), value, {})
        return self.gateway.infer(asked, plans)

    async def answered(
        self, model: Model, call: Answer, before: bytes = b"[]", times: int = 1
    ) -> FallbackPlan:
        """The way in which a call was answered, by the worker of this model. before: a message
        that comes first, so many times."""
        task, lanes = asyncio.create_task(call), self.lanes(model)
        await eventually_async(lambda: lanes.look("s").lanes or task.done())
        assert not task.done(), task.result()
        [taken] = self.take(model)
        self.redis.rpush(lanes.keys.replies(taken.reply_to), *[before] * times)
        lanes.reply(taken.reply_to, [Reply(taken.id, b'"output"', None, taken.size, {})])
        way, (output, error, units, _) = await task
        assert (output, error, units) == (b'"output"', None, way.size)
        return way

    async def fill(self, model: Model, rows: int, of: str = "interactive") -> None:
        """So many more calls wait."""
        lanes = self.lanes(model)
        wanted = rows + rows_of(lanes)
        tasks = [asyncio.create_task(self.call(model, of=of)) for _ in range(rows)]
        self.unanswered += tasks
        await eventually_async(
            lambda: any(task.done() for task in tasks) or rows_of(lanes) >= wanted
        )
        assert not any(task.done() for task in tasks), tasks


def rows_of(lanes: RedisLanes) -> int:
    return sum(lane.rows for lane in lanes.look("s").lanes)


@asynccontextmanager
async def on_stage(
    url: str, client: "redis.Redis", models: Sequence[Model] = (), most: int = 50
) -> AsyncIterator[Stage]:
    """A gateway that runs. most: calls that may wait for a model."""
    gateway = CallGateway(url, most, max_streams=most)
    gateway.start()
    pipe = open_pipeline(url, PATIENCE_S)
    responses = ResponseCache(url, 60.0)
    made = Stage(client, gateway, Registry(list(models)), pipe, responses)
    try:
        yield made
    finally:
        for task in made.unanswered:
            task.cancel()
        await asyncio.gather(*made.unanswered, return_exceptions=True)
        await gateway.stop()
        await pipe.close()
        await responses.stop()
