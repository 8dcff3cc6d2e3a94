"""Adapters of one network in stacked matrices, so that a step computes several of them at once.

A step's rows belong to slots. Those of a slot with many rows are computed by its own matrices.
Slots with few rows, as sequences that decode have one each, share two products with the matrices of
all slots, between which a mask keeps each row to its own: the number of kernels doesn't grow with
the number of adapters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from workers.engines.adapters.lora import Lora, Rows, Shapes, add_product, rows_of

_FEW = 16  # rows of a slot


@dataclass(frozen=True, slots=True)
class Plan:
    """Rows of a step by slot."""

    apart: Sequence[tuple[Rows, int]]  #: rows of slots that are computed by themselves
    together: Rows | None = None  #: those of all other slots
    mask: Tensor | None = None  #: of those: [row, slot and rank], 1 in the row's own slot


class StackedAdapters:
    """Matrices of all slots of a network, whose layers add to their outputs what the plan of the
    present step says. For one thread."""

    def __init__(
        self, layers: dict[str, Any], slots: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._layers, self._slots, self._rank = layers, slots, 0
        self.dtype, self.device = dtype, device
        self.shapes: Shapes = {
            name: (layer.in_features, layer.out_features) for name, layer in layers.items()
        }
        #: By layer: A [slot, rank, in] and B [slot, rank, out]; zero where a slot has none.
        self._stacks: dict[str, tuple[Tensor, Tensor]] = {}
        self._plan: Plan | None = None

    @classmethod
    def of_model(cls, model: Any, slots: int) -> "StackedAdapters":
        """Returns the slots for all linear layers of a model that see every row of a step."""
        head = model.get_output_embeddings()
        layers = {
            name: module
            for name, module in model.named_modules()
            if hasattr(module, "in_features") and module is not head
        }
        return cls(layers, slots, model.dtype, model.device)

    @torch.inference_mode()
    def put(self, slot: int, lora: Lora) -> None:
        """Fills a slot, in place of what was there."""
        if lora.rank > self._rank:
            self._grow(lora.rank)
        for name in lora.layers:
            if name not in self._stacks:
                self._stacks[name] = self._empty(name)
                self._layers[name].register_forward_hook(self._hook(name))
        for name, stacks in self._stacks.items():
            own = lora.layers.get(name)
            rank = lora.rank if own else 0
            for n, stack in enumerate(stacks):
                if own:
                    stack[slot, :rank] = own[n]
                if rank < self._rank:
                    stack[slot, rank:] = 0

    def plan(self, spans: Sequence[tuple[range, int | None]]) -> None:
        """Sets whose rows the next step has; None: rows of the network alone."""
        by_slot: dict[int, list[range]] = {}
        for span, slot in spans:
            if slot is not None:
                by_slot.setdefault(slot, []).append(span)
        few = {slot: its for slot, its in by_slot.items() if sum(map(len, its)) < _FEW}
        if len(few) == 1:
            few = {}
        apart = [
            (rows_of(its, self.device), slot) for slot, its in by_slot.items() if slot not in few
        ]
        if not by_slot:
            self._plan = None
        elif not few:
            self._plan = Plan(apart)
        else:
            self._plan = Plan(apart, *self._together(few))

    def _together(self, few: dict[int, list[range]]) -> tuple[Rows, Tensor]:
        spans = sorted(
            ((span, slot) for slot, its in few.items() for span in its),
            key=lambda one: one[0].start,
        )
        slots = torch.tensor([slot for span, slot in spans for _ in span], device=self.device)
        own = slots[:, None] == torch.arange(self._slots, device=self.device)
        mask = own.to(self.dtype).repeat_interleave(self._rank, 1)
        return rows_of([span for span, _ in spans], self.device), mask

    def _hook(self, name: str) -> Any:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            """Adds to the layer's output, in place."""
            if self._plan:
                x, y = inputs[0], output
                self._add(name, self._plan, x.view(-1, x.shape[-1]), y.view(-1, y.shape[-1]))

        return hook

    def _add(self, name: str, plan: Plan, x: Tensor, y: Tensor) -> None:
        a, b = self._stacks[name]
        for rows, slot in plan.apart:
            add_product(x, y, rows, a[slot], b[slot])
        if plan.together is None or plan.mask is None:
            return
        rows = plan.together
        inner = (x[rows] @ a.flatten(0, 1).T).mul_(plan.mask)
        if isinstance(rows, slice):
            y[rows].addmm_(inner, b.flatten(0, 1))
        else:
            y.index_add_(0, rows, inner @ b.flatten(0, 1))

    def _empty(self, name: str) -> tuple[Tensor, Tensor]:
        size_in, size_out = self.shapes[name]
        shape = self._slots, self._rank
        a, b = (
            torch.zeros(*shape, size, dtype=self.dtype, device=self.device)
            for size in (size_in, size_out)
        )
        return a, b

    def _grow(self, rank: int) -> None:
        """Makes room for adapters of a higher rank."""
        before, self._rank = self._rank, rank
        for name, old in list(self._stacks.items()):
            new = self._stacks[name] = self._empty(name)
            for wide, narrow in zip(new, old, strict=True):
                wide[:, :before] = narrow
