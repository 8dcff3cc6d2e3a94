"""Spans of one generation, with OpenTelemetry's gen_ai attributes."""

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.telemetry.tracing import spans
from jobs.telemetry.tracing.spans import Span


@dataclass(frozen=True, slots=True)
class Generated:
    """One request that ended; times on the process's clock, s."""

    model: str  #: name@version
    worker: str
    arrived_s: float
    ended_s: float
    prefill_s: float | None = None  #: start of its prefill; None: it never began
    first_token_s: float | None = None  #: None: there was none
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    finish_reasons: Sequence[str] = ()  #: one a choice that ended by itself
    max_tokens: int | None = None  #: as requested
    temperature: float | None = None
    preemptions: int = 0
    operation: str = "chat"  #: or text_completion
    error: str = ""  #: code
    seq: int | None = None  #: of an item in its job


def record(packed: str, one: Generated) -> None:
    """Records a request in the trace of its call or item; does nothing where it isn't sampled."""
    span = spans.span_in_trace(packed, f"{one.operation} {one.model}", "consumer")
    if not span.context:
        return
    span.since_s, span.until_s, span.error = one.arrived_s, one.ended_s, one.error
    span.set_attributes(
        gen_ai__operation__name=one.operation,
        gen_ai__provider__name="millrace",
        gen_ai__request__model=one.model,
        gen_ai__response__model=one.model,
        gen_ai__response__finish_reasons=list(one.finish_reasons),
        gen_ai__usage__input_tokens=one.input_tokens,
        gen_ai__usage__cache_read__input_tokens=one.cached_tokens,
        gen_ai__usage__output_tokens=one.output_tokens,
        millrace__model=one.model,
        millrace__worker=one.worker,
        millrace__preemptions=one.preemptions,
    )
    if one.seq is not None:
        span.set_attributes(millrace__seq=one.seq)
    if one.max_tokens is not None:
        span.set_attributes(gen_ai__request__max_tokens=one.max_tokens)
    if one.temperature is not None:
        span.set_attributes(gen_ai__request__temperature=one.temperature)
    spans.record(span, *_stages(span, one))


def _stages(span: Span, one: Generated) -> list[Span]:
    """Returns the spans of queue, prefill and decode, as far as it came."""
    assert span.context
    begins = ("queue", one.arrived_s), ("prefill", one.prefill_s), ("decode", one.first_token_s)
    there = [(name, since_s) for name, since_s in begins if since_s is not None]
    ends = [since_s for _, since_s in there[1:]] + [one.ended_s]
    return [
        Span(name, span.context.child(), span.context.span_id, since_s=since_s, until_s=until_s)
        for (name, since_s), until_s in zip(there, ends, strict=True)
    ]
