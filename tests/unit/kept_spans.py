"""Spans that are kept, in the place of a receiver."""

from collections.abc import Iterator, Sequence

import pytest

from jobs.telemetry.tracing import spans
from jobs.telemetry.tracing.context import TraceContext
from jobs.telemetry.tracing.spans import Span


class Kept:
    def __init__(self) -> None:
        self.spans: list[Span] = []

    def add(self, spans: Sequence[Span]) -> None:
        self.spans += spans

    def stop(self) -> None:
        pass

    def of(self, context: TraceContext) -> dict[str, Span]:
        """Those of its trace, by name."""
        found = (one for one in self.spans if one.context)
        return {one.name: one for one in found if one.context.trace_id == context.trace_id}


@pytest.fixture
def kept() -> Iterator[Kept]:
    """Spans of what others sampled; nothing is sampled here."""
    made = Kept()
    spans.set_receiver(made, share=0.0)
    yield made
    spans.stop()
