"""Splits: how exactly shares are cut of sticky users, whether a ramp takes anybody back, and the
CPU time that a route adds to a call."""

import asyncio
import time
from itertools import pairwise
from typing import cast

from starlette.requests import Request

from api.gateway.model_status import ModelStatuses
from api.gateway.response_cache import ResponseCache
from api.gateway.routing.router import Router
from api.gateway.routing.target import USER_HEADER
from jobs.models.model import Model
from jobs.models.registry import Registry
from jobs.models.routing.bucket import bucket_of
from jobs.models.routing.rollout import ActiveRollout
from jobs.models.routing.route import Route, Share
from jobs.models.routing.table import RoutingTable
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report

ASKED = ("split_error <= 0.5", "taken_back <= 0", "route_cpu_ms <= 0.02")

_USERS = 200_000
_RAMP = (0.5, 1.0, 5.0, 10.0, 25.0, 50.0, 100.0)  # percent
_CALLS = 50_000
_RUNS = 5
_MODELS = [Model("m", version, "echo") for version in ("1", "2")]


def measure(report: Report, scale: Scale) -> None:
    """Measures users of three salts, then calls on one event loop."""
    users = int(scale.seconds(_USERS))
    say(f"{users:,} users of three salts up a ramp")
    errors, taken_back = zip(*(_ramp(f"salt-{n}", users) for n in range(3)), strict=True)
    report.add(split_error=round(max(errors), 3), taken_back=sum(taken_back))
    calls = int(scale.seconds(_CALLS))
    say(f"{calls:,} calls with a route and without one")
    without, *others = (_cpu_ms(routing, calls) for routing in (RoutingTable(), *_TABLES))
    report.add(route_cpu_ms=round(max(others) - without, 4), unrouted_cpu_ms=round(without, 4))


def _ramp(salt: str, users: int) -> tuple[float, int]:
    """Returns the largest error of a share, in points, and how many users went back."""
    buckets = [bucket_of(salt, f"tenant-{n % 20}", f"user-{n}") for n in range(users)]
    steps = [ActiveRollout("r", "m", "1", "2", percent) for percent in _RAMP]
    on_canary = [[step.cohort_at(one) == "canary" for one in buckets] for step in steps]
    shares = [100 * sum(chosen) / users for chosen in on_canary]
    error = max(abs(share - percent) for share, percent in zip(shares, _RAMP, strict=True))
    back = sum(
        was and not stays
        for before, after in pairwise(on_canary)
        for was, stays in zip(before, after, strict=True)
    )
    return error, back


class _AllReady:
    """Statuses of versions that all have a ready worker."""

    ready = True

    async def get(self, model: Model) -> "_AllReady":
        """Returns a status, as `ModelStatuses.get`."""
        return self

    async def choose(self, versions: list[Model]) -> Model:
        """Returns the first version, as `ModelStatuses.choose`."""
        await self.get(versions[0])
        return versions[0]


def _cpu_ms(routing: RoutingTable, calls: int) -> float:
    """Returns the CPU time of the choice of a version, ms a call: the least of five runs."""
    router = Router(
        cast(ModelStatuses, _AllReady()), cast(ResponseCache, None)
    )  # no call has a key
    models = Registry(_MODELS, routing)
    header = USER_HEADER.lower().encode()
    more = [(b"host", b"localhost"), (b"user-agent", b"x"), (b"content-type", b"application/json")]
    requests = [
        Request({"type": "http", "headers": [*more, (header, f"user-{n}".encode())]})
        for n in range(calls)
    ]

    async def run() -> float:
        since_s = time.process_time()
        for request in requests:
            await router.route(models, "m", request, "acme")
        return (time.process_time() - since_s) * 1000 / calls

    return min(asyncio.run(run()) for _ in range(_RUNS))


_SHARES = (Share("1", 90), Share("2", 10))
_TABLES = (
    RoutingTable(routes={("m", "*"): Route("m", _SHARES, sticky="user", salt="s")}),
    RoutingTable(routes={("m", "*"): Route("m", _SHARES)}),
    RoutingTable(rollouts={"m": ActiveRollout("r", "m", "1", "2", 5, "user", "s")}),
)
