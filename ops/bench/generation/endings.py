"""Streams that end in every way: what is billed, and what they leave behind."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import closing

import httpx
import psutil
import redis

from jobs import clock
from jobs.api_keys import NewKey
from jobs.calls.keys import Keys
from jobs.store.tenants import api_keys
from ops.bench.generation import chats
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load.endings import EndedStream, Ending, stream
from ops.bench.load.tenants import Tenants, tenants_of
from ops.bench.probes import memory, scrape
from ops.bench.results.report import Report
from ops.supervisor.platform import Platform

_STEP_MS, _PLACES = 20.0, 1024
_COUNT, _AT_ONCE = 1000, 50
_TIMEOUT_S = 120.0
_BILLED_WITHIN_S = 180.0  # calls are billed when their minute is over
_IDLE_WITHIN_S = 15.0
_POLL_S = 1.0

_LONG = {"min_tokens": 400}
#: By the tenant whose streams end so.
_ENDINGS = {
    "length": Ending(40, {"max_tokens": 12}, {}, finish="length"),
    "stop": Ending(40, {"stop": ["word8"]}, {}, finish="stop"),
    "early": Ending(40, _LONG, {}, leave_ms=_STEP_MS),
    "middle": Ending(40, _LONG, {}, leave_after=5),
    "deadline": Ending(40, _LONG, {"timeout_ms": 2000}, error="deadline_passed"),
}
_CANCELLED = Ending(40, _LONG, {}, leave_after=3)
_NAME = f"{chats.LIGHT}@1"


def measure(report: Report, scale: Scale) -> None:
    """Measures 1,000 streams that are cancelled, then 1,000 that end in every way."""
    count = int(scale.seconds(_COUNT))
    models = chats.light_model(_STEP_MS, _PLACES, target_ttft_ms=60_000)  # refuses none
    names = ["cancelled", *_ENDINGS]
    with own_platform(models=models) as platform, tenants_of(platform, names) as tenants:
        key = _operator(tenants)
        cancelled = _run(platform, tenants, {"cancelled": _CANCELLED}, count)["cancelled"]
        report.add(left_behind=_left_behind(platform, key))
        ended = _run(platform, tenants, _ENDINGS, count // len(_ENDINGS))
        mismatches = _mismatches(platform, tenants, key, {**ended, "cancelled": cancelled})
        billed = _billed(tenants, "cancelled")["output"]
    seen = sum(one.tokens for one in cancelled)
    report.add(cancel_steps=(billed - seen) / count, usage_mismatches=mismatches)


def _run(
    platform: Platform, tenants: Tenants, endings: Mapping[str, Ending], count: int
) -> dict[str, list[EndedStream]]:
    """Runs so many streams of each ending, fifty at a time in all, the endings mixed."""

    async def work() -> list[EndedStream]:
        """Runs all."""
        slots = asyncio.Semaphore(_AT_ONCE)
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=platform.url, timeout=_TIMEOUT_S, limits=limits
        ) as http:

            async def one(name: str, number: int) -> EndedStream:
                """Runs one when there is room."""
                async with slots:
                    key = tenants.keys[name]
                    return await stream(http, chats.LIGHT, key, endings[name], number)

            return list(
                await asyncio.gather(*(one(name, n) for n in range(count) for name in endings))
            )

    found, kinds = asyncio.run(work()), len(endings)
    return {name: found[place::kinds] for place, name in enumerate(endings)}


def _mismatches(
    platform: Platform,
    tenants: Tenants,
    key: str,
    ended: Mapping[str, Sequence[EndedStream]],
) -> int:
    """Streams whose usage isn't what they got, and tokens by which the ledger differs from what the
    worker generated for each tenant, once their minute is billed."""
    wrong = 0
    for one in (one for name in ("length", "stop") for one in ended[name]):
        usage = one.usage or {}
        wrong += (usage.get("prompt_tokens"), usage.get("completion_tokens")) != (40, one.tokens)
    generated = {
        name: scrape.total(platform, "millrace_tenant_units_total", key, tenant=name)
        for name in ended
    }
    deadline_s = clock.monotonic() + _BILLED_WITHIN_S
    while True:
        billed = {name: _billed(tenants, name) for name in ended}
        differ = {
            name: tokens["input"] + tokens["output"] - generated[name]
            for name, tokens in billed.items()
        }
        if not any(differ.values()) or clock.monotonic() > deadline_s:
            break
        clock.sleep(_POLL_S)
    for name, tokens in billed.items():
        say(f"{len(ended[name])} streams, {name}: {tokens} billed, {generated[name]:.0f} generated")
    return wrong + int(sum(map(abs, differ.values())))


def _billed(tenants: Tenants, name: str) -> dict[str, int]:
    """Tokens in a tenant's ledger."""
    with closing(tenants.client(name)) as client:
        groups = client.get("/usage")["data"]
    return {kind: sum(group["tokens"][kind] for group in groups) for kind in ("input", "output")}


def _left_behind(platform: Platform, key: str) -> float:
    """KV blocks in use, sequences, calls and connections in the api, entries in Redis: what is left
    of streams that have ended, a few seconds later."""
    deadline_s = clock.monotonic() + _IDLE_WITHIN_S
    while any((left := _left(platform, key)).values()) and clock.monotonic() < deadline_s:
        clock.sleep(_POLL_S)
    say(f"left behind: {left}")
    return sum(left.values())


def _left(platform: Platform, key: str) -> dict[str, float]:
    def total(name: str) -> float:
        return scrape.total(platform, f"millrace_{name}", key)

    api = psutil.Process(memory.pids(platform)["api"])
    port = int(platform.url.rpartition(":")[2])
    sockets = [one for one in api.net_connections() if one.laddr and one.laddr.port == port]
    return {
        "blocks": total("kv_cache_usage_perc") * total("kv_cache_blocks"),
        "running": total("num_requests_running"),
        "waiting": total("num_requests_waiting"),
        "calls in the api": total("calls_in_flight"),
        "connections": sum(one.status == psutil.CONN_ESTABLISHED for one in sockets),
        "entries in Redis": _entries(platform),
    }


def _entries(platform: Platform) -> int:
    """Entries of open calls in Redis."""
    keys = Keys(_NAME)
    with redis.Redis.from_url(platform.settings.redis_url) as client:
        hashes = sum(int(client.hlen(keys(name))) for name in ("calls", "taken", "bounded"))
        lanes = sum(1 for _ in client.scan_iter(keys("lane:*")))
        return hashes + lanes + int(client.scard(keys("lanes")))


def _operator(tenants: Tenants) -> str:
    """Creates a key that may read the api's metrics."""
    new = NewKey("operator", role="operator")
    with tenants.database.begin() as tx:
        api_keys.create(tx, new)
    return new.secret
