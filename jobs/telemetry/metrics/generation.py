"""Events of models that generate, for the generation host: counted in metrics with vLLM's names.

Each function only queues the event (`deferred`), and does nothing while metrics are off.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from jobs.telemetry.metrics import metrics
from jobs.telemetry.metrics.metrics import TENANTS
from jobs.telemetry.metrics.record import run_later

Kind = Literal["call", "item"]


@dataclass(frozen=True, slots=True)
class Targets:
    """Targets of a model's calls."""

    ttft_s: float  #: time to the first token
    itl_s: float  #: mean time between tokens


@dataclass(frozen=True, slots=True)
class EndedRequest:
    """Times and tokens of one request that ended; None: it did not come so far."""

    queue_s: float | None = None  #: until its prefill began
    prefill_s: float | None = None  #: from then to the first token
    decode_s: float | None = None  #: from then to the last
    ttft_s: float | None = None  #: from its arrival to the first token
    itl_s: float | None = None  #: mean time between tokens; None: it has one, or none
    input_tokens: int = 0  #: of its prompt
    cached_tokens: int = 0  #: of those, found in the cache
    output_tokens: int = 0  #: generated
    preemptions: int = 0


@dataclass(frozen=True, slots=True)
class PoolState:
    """State of a generator after a step."""

    running: Mapping[Kind, int]  #: sequences in the step
    waiting: Mapping[Kind, int]  #: sequences that wait for blocks
    blocks: int  #: KV blocks; 0: not known
    free_blocks: int


@run_later
def request_ended(
    model: str,
    kind: Kind,
    request: EndedRequest,
    finished: Iterable[str],
    targets: Targets | None = None,
) -> None:
    """Counts a request that ended. finished: reason of each of its sequences that ended by itself;
    targets: None where it ended too soon, or by its own fault, to be held to them."""
    times = (
        (metrics.REQUEST_QUEUE_S, request.queue_s),
        (metrics.REQUEST_PREFILL_S, request.prefill_s),
        (metrics.REQUEST_DECODE_S, request.decode_s),
        (metrics.TTFT_S, request.ttft_s),
    )
    for histogram, seconds in times:
        if seconds is not None:
            histogram.labels(model, kind).observe(seconds)
    for reason in finished:
        metrics.REQUEST_SUCCESS.labels(model, reason).inc()
    metrics.PROMPT_TOKENS.labels(model).inc(request.input_tokens)
    metrics.GENERATION_TOKENS.labels(model).inc(request.output_tokens)
    metrics.PREFIX_QUERIES.labels(model).inc(request.input_tokens)
    metrics.PREFIX_HITS.labels(model).inc(request.cached_tokens)
    if request.preemptions:
        metrics.PREEMPTIONS.labels(model, kind).inc(request.preemptions)
    if targets and kind == "call":
        _judge(model, "ttft", request.ttft_s is not None and request.ttft_s <= targets.ttft_s)
        if request.itl_s is not None:
            _judge(model, "itl", request.itl_s <= targets.itl_s)


def _judge(model: str, target: str, met: bool) -> None:
    metrics.GENERATION_TARGET.labels(model, target, "true" if met else "false").inc()


@run_later
def step_ended(
    model: str, seconds: float, prefill_tokens: int, gaps_s: Mapping[Kind, tuple[float, ...]]
) -> None:
    """Counts a step. gaps_s: time since the token before, of each sequence that got a further
    one."""
    metrics.STEP_S.labels(model, "true" if prefill_tokens else "false").observe(seconds)
    metrics.MODEL_BUSY_S.labels(model).inc(seconds)
    for kind, gaps in gaps_s.items():
        histogram = metrics.ITL_S.labels(model, kind)
        for gap_s in gaps:
            histogram.observe(gap_s)


@run_later
def pool_changed(model: str, state: PoolState, tenants: Mapping[str, int]) -> None:
    """Sets the state of a generator; call it a few times a second. tenants: blocks in use, with 0
    for a tenant that has none any more."""
    for kind, count in state.running.items():
        metrics.RUNNING.labels(model, kind).set(count)
    for kind, count in state.waiting.items():
        metrics.WAITING.labels(model, kind).set(count)
    metrics.KV_BLOCKS.labels(model).set(state.blocks)
    used = state.blocks - state.free_blocks
    metrics.KV_USAGE.labels(model).set(used / state.blocks if state.blocks else 0.0)
    by_series: dict[str, int] = {}
    for tenant, blocks in tenants.items():
        name = TENANTS(tenant)
        by_series[name] = by_series.get(name, 0) + blocks
    for name, blocks in by_series.items():
        metrics.TENANT_KV_BLOCKS.labels(name, model).set(blocks)
