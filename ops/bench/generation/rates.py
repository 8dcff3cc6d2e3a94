"""Rates and latencies of a model beside its engine driven bare."""

from dataclasses import dataclass

from ops.bench.baselines.generators import Order
from ops.bench.generation import chats
from ops.bench.generation.target import Target
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report


@dataclass(frozen=True, slots=True)
class Extent:
    """Amount of measuring."""

    items: int = 200  #: of the job
    item_tokens: int = 48  #: generated, each
    calls: int = 24  #: one after the other
    call_tokens: int = 32  #: generated, each


def measure_job(
    report: Report, scale: Scale, target: Target, extent: Extent
) -> dict[str, list[float]]:
    """Measures tokens/s of a job and of its engine driven bare, in turn; returns them by side."""
    asked, tokens = chats.questions(int(scale.seconds(extent.items))), extent.item_tokens
    bodies = [
        {**body, "temperature": 0, "max_tokens": tokens, "min_tokens": tokens} for body in asked
    ]

    def job(_: int) -> float:
        """Runs the job."""
        per_s = len(bodies) * tokens / target.run_job(bodies).seconds
        say(f"job: {per_s:.1f} tokens/s")
        return per_s

    def engine(_: int) -> float:
        """Runs the engine."""
        per_s = target.bare(Order(asked, tokens, target.places)).per_s
        say(f"bare engine: {per_s:.1f} tokens/s")
        return per_s

    rates = scale.in_turn({"job": job, "bare engine": engine})
    report.spread(job_tokens_per_s=rates["job"], bare_tokens_per_s=rates["bare engine"])
    figures = report.figures
    report.add(rate_vs_bare=figures["job_tokens_per_s"] / figures["bare_tokens_per_s"])
    return rates


def measure_overhead(report: Report, scale: Scale, target: Target, extent: Extent) -> None:
    """Measures one stream at a time through the api, and on the engine alone."""
    asked, tokens = chats.questions(int(scale.seconds(extent.calls))), extent.call_tokens
    fields = {"temperature": 0, "max_tokens": tokens, "min_tokens": tokens}
    engine = target.bare(Order(asked, tokens))
    found = target.chats([{**body, **fields} for body in asked], 1)
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
