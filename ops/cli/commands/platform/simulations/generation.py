"""Command that replays a trace of a model that generates: `millrace simulate --generation`."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ops.cli.commands.common import as_json_option, show
from ops.simulation import generation_trace
from workers.engines.generator import Capacity
from workers.simulation.generation import (
    Arrival,
    GenerationResult,
    StepCosts,
    quantile,
    replay,
)

_ABOVE_0 = click.FloatRange(min=0, min_open=True)
_WHOLE = click.IntRange(1)
_SHARES = (0.5, 0.9, 0.95, 0.99)


def _costs(context: click.Context, option: click.Parameter, value: str) -> StepCosts:
    try:
        fixed, prefill, sequence, kv = (float(part) / 1000 for part in value.split(","))
    except ValueError:
        raise click.BadParameter('must be four numbers, ms: "fixed,prefill,sequence,kv"') from None
    return StepCosts(fixed, prefill, sequence, kv)


@click.command(
    "simulate",
    epilog="Example: millrace simulate --generation AzureLLMInferenceTrace_conv.csv --job",
)
@click.option("--generation", "path", type=click.Path(path_type=Path, dir_okay=False),
              required=True, help="File of arrivals with token counts.")  # fmt: skip
@click.option("--step-ms", "costs", callback=_costs, default="8,0.05,0.1,0.00002",
              show_default=True,
              help="Time of a step: fixed, per token of prompts, sequence, KV token.")  # fmt: skip
@click.option("--blocks", type=_WHOLE, default=8192, show_default=True, help="KV blocks.")
@click.option("--block-tokens", type=_WHOLE, default=16, show_default=True,
              help="Tokens of a block.")  # fmt: skip
@click.option("--sequences", type=_WHOLE, default=64, show_default=True,
              help="Most sequences of a step.")  # fmt: skip
@click.option("--context-tokens", type=_WHOLE, default=16_384, show_default=True,
              help="Most tokens of a sequence.")  # fmt: skip
@click.option("--itl-ms", type=click.FloatRange(min=0), default=0.0,
              help="Time between tokens that items fill; 0: items hardly slow calls.")  # fmt: skip
@click.option("--compress", type=_ABOVE_0, default=1.0, help="Divide the trace's times.")
@click.option("--first", type=_WHOLE, help="Replay so many arrivals alone.")
@click.option("--job", is_flag=True, help="Add a job that never runs out of items.")
@as_json_option
def simulate_generation(
    path: Path, costs: StepCosts, blocks: int, block_tokens: int, sequences: int,
    context_tokens: int, itl_ms: float, compress: float, first: int | None, job: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Replays requests with token counts against the scheduler of models that generate."""
    arrivals = generation_trace.compressed(generation_trace.read(path)[:first], compress)
    capacity = Capacity(blocks, block_tokens, sequences, context_tokens)
    if blocks * block_tokens < context_tokens:
        raise click.UsageError("--blocks of --block-tokens must hold a sequence")
    result = replay(arrivals, capacity, costs, itl_ms / 1000, job=job)
    show(_as_json(result, arrivals), _lines(result, arrivals), as_json)


def _as_json(result: GenerationResult, arrivals: list[Arrival]) -> dict[str, Any]:
    plain = {k: v for k, v in asdict(result).items() if k not in ("ttft_s", "itl_s", "tenants")}
    quantiles = {
        f"{name}_p{share * 100:g}_ms": quantile(values, share) * 1000
        for name, values in (("ttft", result.ttft_s), ("itl", result.itl_s))
        for share in _SHARES
    }
    return {"calls": len(arrivals), **plain, **quantiles}


def _lines(result: GenerationResult, arrivals: list[Arrival]) -> Iterator[str]:
    lasted_s = max(result.lasted_s, 1e-9)
    yield f"{len(arrivals):,} calls in {lasted_s:,.0f} s, {result.steps:,} steps"
    for name, values in (("first token", result.ttft_s), ("between tokens", result.itl_s)):
        said = (f"p{share * 100:g} {quantile(values, share) * 1000:,.1f}" for share in _SHARES)
        yield f"{name:<15}{'  '.join(said)} ms"
    yield f"tokens of calls {result.calls_tokens / lasted_s:,.1f}/s"
    yield f"tokens of items {result.items_tokens / lasted_s:,.1f}/s"
    yield f"KV blocks      {result.blocks_used:.1%} in use"
    yield f"preemptions    {result.preemptions:,}"
