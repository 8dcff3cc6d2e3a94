"""Options of the engine `echo_chat`."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from jobs.models.engines.engine_spec import EngineOptions, EntryContext

CONTEXT_TOKENS = 8192  # where an entry says nothing else
_Whole = Annotated[int, Field(ge=1, le=10_000_000)]
_Number = Annotated[float, Field(ge=0, le=60_000)]


class EchoChatOptions(EngineOptions):
    """Sizes and times of an engine that answers with the words of the prompt."""

    step_ms: _Number = 0.0  #: time of a step
    prefill_us: _Number = 0.0  #: time that each token of a prompt adds to its step
    blocks: _Whole = 4096  #: KV blocks
    block_tokens: _Whole = 16
    sequences: _Whole = 64  #: most sequences of a step
    context_tokens: _Whole = CONTEXT_TOKENS
    token_log: str = ""  #: file to which each step appends the number of its tokens; "": none

    def conflicts(self, entry: EntryContext | None) -> Iterator[str]:
        """Implements `EngineOptions.conflicts`."""
        if self.blocks * self.block_tokens < self.context_tokens:
            yield "blocks of block_tokens must hold a sequence of context_tokens"
        yield from super().conflicts(entry)
