"""Masks of the rows whose text follows a grammar, computed while the network computes."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers.engines.transformers.structured.matching import GrammarState

if TYPE_CHECKING:
    from llguidance import LLExecutor

_WORD = 32  # tokens of an integer of a mask
_MOST_THREADS = 4


class Masks:
    """Masks of one step; `rows` are those that have one."""

    def __init__(self, rows: Sequence[int], bits: "Future[NDArray[np.int32]]") -> None:
        self._rows, self._bits = rows, bits

    def apply(self, logits: Tensor) -> None:
        """Excludes the tokens that may not come; logits [row, token] of all rows of the step."""
        bits = torch.from_numpy(self._bits.result()).to(logits.device)
        places = torch.arange(_WORD, dtype=torch.int32, device=logits.device)
        allowed = ((bits[:, :, None] >> places) & 1).flatten(1)[:, : logits.shape[-1]].bool()
        if len(self._rows) == len(logits):
            logits.masked_fill_(~allowed, -torch.inf)
        else:
            rows = torch.tensor(self._rows, device=logits.device)
            logits[rows] = logits[rows].masked_fill(~allowed, -torch.inf)


class MaskMaker:
    """Computes masks on a thread of its own."""

    def __init__(self, vocabulary: int, threads: int) -> None:
        self._words = -(-vocabulary // _WORD)
        self._threads = min(threads, _MOST_THREADS)
        self._executor: LLExecutor | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="masks")

    def begin(self, states: Sequence[GrammarState | None]) -> Masks | None:
        """Begins to compute the masks of a step, of each row that has a state; None: no row has."""
        rows = [row for row, state in enumerate(states) if state]
        if not rows:
            return None
        matched = [state for state in states if state]
        return Masks(rows, self._thread.submit(self._compute, matched))

    def _compute(self, states: Sequence[GrammarState]) -> NDArray[np.int32]:
        from llguidance import LLExecutor
        from llguidance import numpy as masks

        if self._executor is None:
            self._executor = LLExecutor(num_threads=self._threads)
        bits = np.zeros((len(states), self._words), np.int32)
        numbered = [(state.matcher, row) for row, state in enumerate(states)]
        masks.fill_next_token_bitmask_par(self._executor, numbered, bits)
        return bits
