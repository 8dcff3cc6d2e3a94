"""Calls that were parsed, checked and sized, here or in a child process: both can be pickled."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from api.gateway.fallbacks import FallbackPlan
from api.gateway.routing.target import Target
from api.gateway.streaming.inbox import StreamDeadlines
from jobs.errors import TooLarge
from jobs.immutable import immutable
from jobs.models.model import Model
from jobs.states import JobClass


@immutable
class PreparedCall:
    """One call, ready to be admitted."""

    value: bytes  #: input, as JSON
    plans: Iterable[FallbackPlan]  #: in order; the first is as requested
    timeout_ms: int
    job_class: JobClass
    target: Target
    stream: StreamDeadlines | None = None  #: None: the answer comes in one piece


@dataclass(frozen=True, slots=True)
class PreparedInputs:
    """Inputs of one request, each a call of its own."""

    target: Target
    values: Sequence[bytes]  #: inputs, as JSON
    plans: Sequence[FallbackPlan]  #: one for each of several inputs; all those of a single one


def check_length(raw: bytes, model: Model) -> None:
    """Raises TooLarge for a body that no valid input of the model needs."""
    if len(raw) > model.max_line_bytes:
        raise TooLarge(f"the body has {len(raw)} bytes; {model.key} takes {model.max_line_bytes}")
