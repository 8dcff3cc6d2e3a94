"""Streams of a generator that answers at a fixed pace: what the platform adds, and what ended
streams leave behind."""

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
from ops.bench.load.tenants import Tenants, tenants_of
from ops.bench.probes import memory
from ops.bench.probes.cpu import Meter
from ops.bench.results.report import Report
from ops.supervisor.platform import Platform

_STEP_MS = 20.0
_TOKENS = 64
_CALLS_PER_S, _CALLS_S = 4.0, 30.0
_OPEN = 500
_CANCELLED, _SEEN = 1000, 3
_LIGHT = [f"light-{n}" for n in range(9)]


def measure(report: Report, scale: Scale) -> None:
    """Measures each on a platform of its own."""
    with own_platform(models=chats.light_model(_STEP_MS, 16)) as platform:
        _cost(report, scale, platform)
        _beside(report, scale, platform)
    with own_platform(models=chats.light_model(_STEP_MS, 1024)) as platform:
        _open_streams(report, scale, platform)
        _cancelled(report, scale, platform)
    _fairness(report, scale)


def _text(words: int) -> str:
    return " ".join(f"word{n}" for n in range(words))


def _body(words: int = _TOKENS, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": _text(words)}], "temperature": 0, **fields}


def _run(platform: Platform, work: Any, key: str = "") -> Any:
    return streams.run(platform.url, chats.LIGHT, work, key)


def _api(platform: Platform) -> Meter:
    return Meter({"api": [memory.pids(platform)["api"]]}, {})


def _cost(report: Report, scale: Scale, platform: Platform) -> None:
    """CPU of the api for each token of 16 streams."""
    bodies = [_body()] * int(scale.seconds(200))
    _run(platform, lambda client: streams.at_once(client, bodies[:16], 16))
    meter, costs = _api(platform), []
    for _ in range(scale.rounds):
        before_s = sum(meter.read().values())
        found = _run(platform, lambda client: streams.at_once(client, bodies, 16))
        used_s = sum(meter.read().values()) - before_s
        costs.append(used_s * 1000 / sum(len(chat.arrived_s) for chat in found))
    report.spread(cpu_ms_per_token=costs)


def _beside(report: Report, scale: Scale, platform: Platform) -> None:
    """Calls alone, and beside a job that saturates the model."""
    seconds = scale.seconds(_CALLS_S)
    items = [{"input": _body()}] * int(16 * 1000 / _STEP_MS / _TOKENS * seconds)
    capacity_per_s = 16 * 1000 / _STEP_MS
    left = 1 - _CALLS_PER_S * _TOKENS / capacity_per_s
    ttft, itl, ratios = list[float](), list[float](), list[float]()
    with closing(Client(platform.url)) as client:
        for seed in range(scale.rounds):
            due_s = poisson(_CALLS_PER_S, seconds, seed)
            bodies = [_body()] * len(due_s)
            alone_per_s = len(items) / client.run_job(chats.LIGHT, items).seconds
            alone = _run(platform, lambda c, b=bodies, d=due_s: streams.open_loop(c, b, d))
            job = client.post(chats.LIGHT, items * 2)
            since_s, before = clock.monotonic(), client.job(job)["counts"]["succeeded"]
            during = _run(platform, lambda c, b=bodies, d=due_s: streams.open_loop(c, b, d))
            done = client.job(job)["counts"]["succeeded"] - before
            per_s = done / (clock.monotonic() - since_s)
            client.cancel(job)
            say(f"job: {alone_per_s:.1f} items/s alone, {per_s:.1f} beside calls")
            ttft.append(_p95_ttft(during) / _p95_ttft(alone))
            itl.append(_p95_itl(during) / _p95_itl(alone))
            ratios.append(per_s / (alone_per_s * left))
    report.spread(ttft_p95_ratio=ttft, itl_p95_ratio=itl, items_ratio=ratios)


def _p95_ttft(found: Sequence[streams.StreamedChat]) -> float:
    streams.check(found)
    return _p95([chat.ttft_ms for chat in found])


def _p95_itl(found: Sequence[streams.StreamedChat]) -> float:
    return _p95([gap for chat in found for gap in chat.gaps_ms])


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[int(0.95 * len(values))]


def _open_streams(report: Report, scale: Scale, platform: Platform) -> None:
    """Memory of the api for each open stream."""
    count = int(scale.seconds(_OPEN))
    pid = memory.pids(platform)["api"]
    _run(platform, lambda client: streams.at_once(client, [_body(8)] * 50, 50))
    before_mb, peak_mb = memory.rss_mb(pid), [0.0]

    async def work(client: streams.ChatClient) -> None:
        """Opens all, and reads the memory while they run."""
        tasks = [asyncio.create_task(client.stream(_body(400))) for _ in range(count)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.1)
            peak_mb[0] = max(peak_mb[0], memory.rss_mb(pid))
        streams.check(await asyncio.gather(*tasks))

    _run(platform, work)
    report.add(open_stream_kb=(peak_mb[0] - before_mb) * 1024 / count)


def _cancelled(report: Report, scale: Scale, platform: Platform) -> None:
    """Tokens that are generated after a client has disconnected, by what it is billed."""
    count = int(scale.seconds(_CANCELLED))
    with closing(Client(platform.url)) as client:
        before = _billed(client)
        seen = [0]

        def leave(chat: streams.StreamedChat) -> bool:
            """Disconnects after a few tokens."""
            return len(chat.arrived_s) < _SEEN

        async def work(client: streams.ChatClient) -> None:
            """Cancels all, fifty at a time."""
            slots = asyncio.Semaphore(50)

            async def one() -> None:
                """Cancels one."""
                async with slots:
                    chat = await client.stream(_body(400), on_text=leave)
                    seen[0] += len(chat.arrived_s)

            await asyncio.gather(*(one() for _ in range(count)))

        _run(platform, work)
        deadline_s = clock.monotonic() + 150  # calls are billed when their minute is over
        billed = before
        while clock.monotonic() < deadline_s:
            clock.sleep(5)
            if (latest := _billed(client)) == billed != before:
                break
            billed = latest
    report.add(cancel_steps=(billed - before - seen[0]) / count)


def _billed(client: Client) -> int:
    usage = client.get("/usage")
    return sum(group["output_tokens"] for group in usage["data"])


def _fairness(report: Report, scale: Scale) -> None:
    """Time to the first token of nine light tenants, alone and beside one that floods."""
    seconds = scale.seconds(_CALLS_S)
    models = chats.light_model(_STEP_MS, 16)
    names = ["heavy", *_LIGHT]
    with own_platform(models=models) as platform, tenants_of(platform, names) as tenants:
        ratios = []
        for seed in range(scale.rounds):
            alone = _light(platform, tenants, seconds, seed, flood=False)
            ratios.append(_light(platform, tenants, seconds, seed, flood=True) / alone)
        report.spread(light_ttft_ratio=ratios)


def _light(
    platform: Platform, tenants: Tenants, seconds: float, seed: int, *, flood: bool
) -> float:
    """p95 of the light tenants' times to the first token, ms."""
    due_s = poisson(1.0, seconds, seed)

    async def work(client: streams.ChatClient) -> list[streams.StreamedChat]:
        """Streams of all light tenants, beside the flood."""
        heavy = streams.ChatClient(client.http, client.model, tenants.keys["heavy"])
        flooding = [
            asyncio.create_task(heavy.stream(_body(400))) for _ in range(64 if flood else 0)
        ]
        light = [
            streams.ChatClient(client.http, client.model, tenants.keys[name]) for name in _LIGHT
        ]
        found = await asyncio.gather(
            *(streams.open_loop(each, [_body(16)] * len(due_s), due_s) for each in light)
        )
        for task in flooding:
            task.cancel()
        await asyncio.gather(*flooding, return_exceptions=True)
        return [chat for chats_of in found for chat in chats_of]

    return _p95_ttft(_run(platform, work))
