"""Streams of a generator that answers at a fixed pace: what the platform adds."""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from jobs import clock
from ops.bench.generation import chats
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load import chats as streams
from ops.bench.load.arrivals import poisson
from ops.bench.load.client import Client
from ops.bench.probes import memory
from ops.bench.probes.cpu import Meter
from ops.bench.results.report import Report
from ops.supervisor.platform import Platform

_STEP_MS = 20.0
_TOKENS = 64
_CALLS_PER_S, _CALLS_S = 4.0, 30.0
_OPEN = 500


def measure(report: Report, scale: Scale) -> dict[str, list[float]]:
    """Measures each on a platform of its own; returns times to the first token, ms, by side."""
    with own_platform(models=chats.light_model(_STEP_MS, 16)) as platform:
        _cost(report, scale, platform)
        ttft_ms = _beside(report, scale, platform)
    with own_platform(models=chats.light_model(_STEP_MS, 1024)) as platform:
        _open_streams(report, scale, platform)
    return ttft_ms


def _run(platform: Platform, work: Any) -> Any:
    return streams.run(platform.url, chats.LIGHT, work)


def _api(platform: Platform) -> Meter:
    return Meter({"api": [memory.pids(platform)["api"]]}, {})


def _cost(report: Report, scale: Scale, platform: Platform) -> None:
    """CPU of the api for each token of 16 streams."""
    bodies = [chats.paced(_TOKENS)] * int(scale.seconds(200))
    _run(platform, lambda client: streams.at_once(client, bodies[:16], 16))
    meter, costs = _api(platform), []
    for _ in range(scale.rounds):
        before_s = sum(meter.read().values())
        found = _run(platform, lambda client: streams.at_once(client, bodies, 16))
        used_s = sum(meter.read().values()) - before_s
        costs.append(used_s * 1000 / sum(len(chat.arrived_s) for chat in found))
    report.spread(cpu_ms_per_token=costs)


def _beside(report: Report, scale: Scale, platform: Platform) -> dict[str, list[float]]:
    """Calls alone, and beside a job that saturates the model."""
    samples: dict[str, list[float]] = {"alone": [], "beside a job": []}
    seconds = scale.seconds(_CALLS_S)
    items = [{"input": chats.paced(_TOKENS)}] * int(16 * 1000 / _STEP_MS / _TOKENS * seconds)
    capacity_per_s = 16 * 1000 / _STEP_MS
    left = 1 - _CALLS_PER_S * _TOKENS / capacity_per_s
    ttft, itl, ratios = list[float](), list[float](), list[float]()
    with closing(Client(platform.url)) as client:
        for seed in range(scale.rounds):
            due_s = poisson(_CALLS_PER_S, seconds, seed)
            bodies = [chats.paced(_TOKENS)] * len(due_s)
            alone_per_s = len(items) / client.run_job(chats.LIGHT, items).seconds
            alone = _run(platform, lambda c, b=bodies, d=due_s: streams.open_loop(c, b, d))
            job = client.post(chats.LIGHT, items * 2)
            since_s, before = clock.monotonic(), client.job(job)["counts"]["succeeded"]
            during = _run(platform, lambda c, b=bodies, d=due_s: streams.open_loop(c, b, d))
            done = client.job(job)["counts"]["succeeded"] - before
            per_s = done / (clock.monotonic() - since_s)
            client.cancel(job)
            say(f"job: {alone_per_s:.1f} items/s alone, {per_s:.1f} beside calls")
            ttft.append(streams.p95_ttft_ms(during) / streams.p95_ttft_ms(alone))
            itl.append(_p95_itl_ms(during) / _p95_itl_ms(alone))
            ratios.append(per_s / (alone_per_s * left))
            for name, found in zip(samples, (alone, during), strict=True):
                samples[name] += [chat.ttft_ms for chat in found]
    report.spread(ttft_p95_ratio=ttft, itl_p95_ratio=itl, items_ratio=ratios)
    return samples


def _p95_itl_ms(found: Sequence[streams.StreamedChat]) -> float:
    return streams.p95([gap for chat in found for gap in chat.gaps_ms])


def _open_streams(report: Report, scale: Scale, platform: Platform) -> None:
    """Memory of the api for each open stream."""
    count = int(scale.seconds(_OPEN))
    pid = memory.pids(platform)["api"]
    _run(platform, lambda client: streams.at_once(client, [chats.paced(8)] * 50, 50))
    before_mb, peak_mb = memory.rss_mb(pid), [0.0]

    async def work(client: streams.ChatClient) -> None:
        """Opens all, and reads the memory while they run."""
        tasks = [asyncio.create_task(client.stream(chats.paced(400))) for _ in range(count)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.1)
            peak_mb[0] = max(peak_mb[0], memory.rss_mb(pid))
        streams.check(await asyncio.gather(*tasks))

    _run(platform, work)
    report.add(open_stream_kb=(peak_mb[0] - before_mb) * 1024 / count)
