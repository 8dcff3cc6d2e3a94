"""The real model: the same text in company, and the rate of a job beside its engine alone."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from ops.bench.baselines.generators import Generated, Order, generator
from ops.bench.generation import chats
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load import chats as streams
from ops.bench.load.client import Client
from ops.bench.results.report import Report
from ops.supervisor.platform import Platform

_STREAMS = 16  # at a time
_JOB_TOKENS, _EXACT_TOKENS, _GAIN_TOKENS = 48, 32, 32
_LONG_STREAMS, _LONG_WORDS = 8, 350  # 500 tokens

Run = Callable[[Order], Generated]


def measure(report: Report, scale: Scale, models: Path) -> dict[str, list[float]]:
    """Measures all; returns tokens/s by side."""
    with ExitStack() as stack:
        platform = stack.enter_context(own_platform(models=models.read_text()))
        client = stack.enter_context(closing(Client(platform.url)))
        client.run_job(chats.REAL, _items(chats.questions(1, max_tokens=1)))  # loads it
        bare, alone, stock = (
            stack.enter_context(generator(kind, models, chats.REAL))
            for kind in ("bare", "alone", "stock")
        )
        _exactness(report, scale, platform, client, alone)
        rates = _rates(report, scale, client, bare)
        _gains(report, scale, bare, stock)
        _overhead(report, scale, platform, bare)
    return rates


def _exactness(
    report: Report, scale: Scale, platform: Platform, client: Client, alone: Run
) -> None:
    """Compares greedy texts of a job and of streams with `generate`, and seeded ones alone and in
    company."""
    count = int(scale.seconds(100))
    asked = chats.questions(count)
    expected = alone(Order(asked, _EXACT_TOKENS, ignore_end=False)).texts
    fields = {"temperature": 0, "max_tokens": _EXACT_TOKENS}
    bodies = [{**body, **fields} for body in asked]
    job = [_text(output) for output in client.run_job(chats.REAL, _items(bodies)).outputs]
    streamed = _stream(platform, bodies)
    seeded = [
        {**body, "max_tokens": _EXACT_TOKENS, "temperature": 0.8, "seed": n}
        for n, body in enumerate(asked[: count // 2])
    ]
    one_by_one = [_text(client.call(chats.REAL, body)) for body in seeded]
    report.add(
        exact_share=min(_same(job, expected), _same(streamed, expected)),
        exact_share_of_job=_same(job, expected),
        exact_share_of_streams=_same(streamed, expected),
        seeded_share=_same(_stream(platform, seeded), one_by_one),
    )


def _rates(report: Report, scale: Scale, client: Client, bare: Run) -> dict[str, list[float]]:
    """Measures tokens/s of a job and of its engine driven bare, in turn."""
    asked = chats.questions(int(scale.seconds(200)))
    fields = {"temperature": 0, "max_tokens": _JOB_TOKENS, "min_tokens": _JOB_TOKENS}
    items = _items([{**body, **fields} for body in asked])

    def job(_: int) -> float:
        """Runs the job."""
        per_s = len(items) * _JOB_TOKENS / client.run_job(chats.REAL, items).seconds
        say(f"job: {per_s:.1f} tokens/s")
        return per_s

    def engine(_: int) -> float:
        """Runs the engine."""
        per_s = bare(Order(asked, _JOB_TOKENS, _STREAMS)).per_s
        say(f"bare engine: {per_s:.1f} tokens/s")
        return per_s

    rates = scale.in_turn({"job": job, "bare": engine})
    report.spread(job_tokens_per_s=rates["job"], bare_tokens_per_s=rates["bare"])
    figures = report.figures
    report.add(rate_vs_bare=figures["job_tokens_per_s"] / figures["bare_tokens_per_s"])
    return rates


def _gains(report: Report, scale: Scale, bare: Run, stock: Run) -> None:
    """Measures what streams side by side gain over one, and over transformers' own batching."""
    short = Order(chats.questions(_STREAMS), _GAIN_TOKENS, _STREAMS)
    single = Order(chats.questions(2), _GAIN_TOKENS)
    long = Order(chats.long_contexts(_LONG_STREAMS, _LONG_WORDS), _GAIN_TOKENS, _LONG_STREAMS)
    rates = scale.in_turn(
        {
            "streams": lambda _: bare(short).per_s,
            "single": lambda _: bare(single).per_s,
            "long": lambda _: bare(long).per_s,
            "stock": lambda _: stock(long).per_s,
        }
    )
    report.median(
        tokens_per_s_of_16=rates["streams"],
        tokens_per_s_of_1=rates["single"],
        long_tokens_per_s=rates["long"],
        stock_long_tokens_per_s=rates["stock"],
    )
    figures = report.figures
    report.add(
        batch_gain=figures["tokens_per_s_of_16"] / figures["tokens_per_s_of_1"],
        long_context_gain=figures["long_tokens_per_s"] / figures["stock_long_tokens_per_s"],
    )


def _overhead(report: Report, scale: Scale, platform: Platform, bare: Run) -> None:
    """Measures one stream at a time through the api, and on the engine alone."""
    asked = chats.questions(int(scale.seconds(24)))
    fields = {"temperature": 0, "max_tokens": _GAIN_TOKENS, "min_tokens": _GAIN_TOKENS}
    engine = bare(Order(asked, _GAIN_TOKENS))
    found = _streams(platform, [{**body, **fields} for body in asked], 1)
    report.percentiles("stream_ttft_{}_ms", [chat.ttft_ms for chat in found], 50, 95)
    report.percentiles("engine_ttft_{}_ms", engine.ttft_ms, 50, 95)
    gaps_ms = [gap for chat in found for gap in chat.gaps_ms]
    report.percentiles("stream_itl_{}_ms", gaps_ms, 50)
    report.percentiles("engine_itl_{}_ms", engine.gaps_ms, 50)
    figures = report.figures
    report.add(
        ttft_overhead_ms=figures["stream_ttft_p95_ms"] - figures["engine_ttft_p95_ms"],
        itl_overhead_ms=figures["stream_itl_p50_ms"] - figures["engine_itl_p50_ms"],
    )


def _streams(
    platform: Platform, bodies: Sequence[dict[str, Any]], at_once: int
) -> list[streams.StreamedChat]:
    found: list[streams.StreamedChat] = streams.run(
        platform.url, chats.REAL, lambda client: streams.at_once(client, bodies, at_once)
    )
    return found


def _stream(platform: Platform, bodies: Sequence[dict[str, Any]]) -> list[str]:
    return [chat.text for chat in _streams(platform, bodies, _STREAMS)]


def _items(bodies: Sequence[dict[str, Any]]) -> list[Any]:
    return [{"input": body} for body in bodies]


def _text(output: dict[str, Any]) -> str:
    return str(output["choices"][0]["message"]["content"])


def _same(found: Sequence[str], expected: Sequence[str]) -> float:
    equal = sum(one == other for one, other in zip(found, expected, strict=True))
    return equal / len(expected)
