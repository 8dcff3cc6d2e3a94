"""The real model: the same text everywhere, its rates, and what batching gains."""

from contextlib import ExitStack
from pathlib import Path

from ops.bench.baselines import llamacpp
from ops.bench.baselines.generators import Order, generator
from ops.bench.generation import chats, exactness, rates
from ops.bench.generation.target import Run, Target, started
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report

_STREAMS = 16  # at a time
_TOKENS = 32
_LONG_STREAMS, _LONG_WORDS = 8, 350  # 500 tokens


def measure(report: Report, scale: Scale, models: Path, llama: str) -> dict[str, list[float]]:
    """Measures all; returns tokens/s by side. llama: a Python with llama.cpp; empty: none."""
    with ExitStack() as stack:
        target = stack.enter_context(started(models, chats.REAL, _STREAMS))
        alone, stock = (
            stack.enter_context(generator(kind, models, chats.REAL)) for kind in ("alone", "stock")
        )
        exactness.measure(report, scale, target, alone)
        found = rates.measure_job(report, scale, target, rates.Extent())
        _gains(report, scale, target, stock)
        rates.measure_overhead(report, scale, target, rates.Extent())
        _beside_llamacpp(report, scale, target, llama)
    return found


def _gains(report: Report, scale: Scale, target: Target, stock: Run) -> None:
    """Measures what streams side by side gain over one, and over transformers' own batching."""
    bare = target.bare
    short = Order(chats.questions(_STREAMS), _TOKENS, _STREAMS)
    single = Order(chats.questions(2), _TOKENS)
    long = Order(chats.long_contexts(_LONG_STREAMS, _LONG_WORDS), _TOKENS, _LONG_STREAMS)
    found = scale.in_turn(
        {
            "streams": lambda _: bare(short).per_s,
            "single": lambda _: bare(single).per_s,
            "long": lambda _: bare(long).per_s,
            "stock": lambda _: stock(long).per_s,
        }
    )
    report.median(
        tokens_per_s_of_16=found["streams"],
        tokens_per_s_of_1=found["single"],
        long_tokens_per_s=found["long"],
        stock_long_tokens_per_s=found["stock"],
    )
    figures = report.figures
    report.add(
        batch_gain=figures["tokens_per_s_of_16"] / figures["tokens_per_s_of_1"],
        long_context_gain=figures["long_tokens_per_s"] / figures["stock_long_tokens_per_s"],
    )


def _beside_llamacpp(report: Report, scale: Scale, target: Target, llama: str) -> None:
    """Measures tokens a CPU second of the engine's process and of llama.cpp, in turn."""
    if not llama:
        say("tokens_per_cpu_s_vs_llamacpp is left out: --llamacpp names no Python that has it")
        return
    asked = chats.questions(_STREAMS)
    order = Order(asked, _TOKENS, _STREAMS)
    with llamacpp.generator(llama, asked, _TOKENS) as run:
        found = scale.in_turn(
            {
                "engine": lambda _: target.bare(order).per_cpu_s,
                "llama": lambda _: run(),
            }
        )
    report.spread(tokens_per_cpu_s=found["engine"], llamacpp_tokens_per_cpu_s=found["llama"])
    figures = report.figures
    share = figures["tokens_per_cpu_s"] / figures["llamacpp_tokens_per_cpu_s"]
    report.add(tokens_per_cpu_s_vs_llamacpp=share)
