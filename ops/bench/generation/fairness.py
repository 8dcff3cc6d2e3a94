"""Light tenants beside one that floods the model with long texts."""

import asyncio

from ops.bench.generation import chats
from ops.bench.harness.platform import own_platform
from ops.bench.harness.scale import Scale
from ops.bench.load import chats as streams
from ops.bench.load.arrivals import poisson
from ops.bench.load.tenants import Tenants, tenants_of
from ops.bench.results.report import Report
from ops.supervisor.platform import Platform

_STEP_MS, _PLACES = 20.0, 16
_SECONDS = 30.0
_FLOOD = 64  # streams
_LONG, _SHORT = 400, 16  # tokens
_LIGHT = [f"light-{n}" for n in range(9)]


def measure(report: Report, scale: Scale) -> None:
    """Time to the first token of nine light tenants, alone and beside one that floods."""
    seconds = scale.seconds(_SECONDS)
    models = chats.light_model(_STEP_MS, _PLACES, target_ttft_ms=60_000)  # refuses none
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
    due_s = [poisson(1.0, seconds, 100 * seed + n) for n in range(len(_LIGHT))]

    async def work(client: streams.ChatClient) -> list[streams.StreamedChat]:
        """Streams of all light tenants, beside the flood."""
        heavy = streams.ChatClient(client.http, client.model, tenants.keys["heavy"])
        flooding = [
            asyncio.create_task(heavy.stream(chats.paced(_LONG)))
            for _ in range(_FLOOD if flood else 0)
        ]
        light = [
            streams.ChatClient(client.http, client.model, tenants.keys[name]) for name in _LIGHT
        ]
        found = await asyncio.gather(
            *(
                streams.open_loop(each, [chats.paced(_SHORT)] * len(due), due)
                for each, due in zip(light, due_s, strict=True)
            )
        )
        for task in flooding:
            task.cancel()
        await asyncio.gather(*flooding, return_exceptions=True)
        return [chat for chats_of in found for chat in chats_of]

    found: list[streams.StreamedChat] = streams.run(platform.url, chats.LIGHT, work)
    return streams.p95_ttft_ms(found)
