"""Items that are lists: taken apart into their inputs, which are launched with whatever else waits,
and put together again once all of them have ended."""

from collections.abc import Sequence
from typing import Any

from jobs.intake import validation
from jobs.models.model import Model
from workers.items.in_flight import Ended, InFlightSlice


class Several(list[Any]):
    """The outputs of a list's inputs, in order."""


def taken_apart(
    model: Model, holding: InFlightSlice, seqs: Sequence[int], inputs: Sequence[Any]
) -> tuple[Sequence[int], Sequence[Any], Sequence[int]]:
    """(seq, input, place in its list) of every input, as three columns; without any list the third
    is empty. A list that the model refuses is left as it is, and refused with the others."""
    if not any(isinstance(value, list) for value in inputs):
        return seqs, inputs, ()
    rows: list[tuple[int, Any, int]] = []
    for seq, value in zip(seqs, inputs, strict=True):
        inside = model.split_inputs(value)
        if inside is None or validation.refuse_input(model, value):
            rows.append((seq, value, 0))
        else:
            holding.expect_parts(seq, len(inside))
            rows += [(seq, one, part) for part, one in enumerate(inside)]
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


def joined(holding: InFlightSlice) -> Sequence[Ended]:
    """The ends of a slice's items, in any order. A list of which a part was taken back has not
    ended."""
    if not holding.lists:
        return holding.ended
    ended: list[Ended] = []
    parts: dict[int, list[Ended]] = {seq: [] for seq in holding.lists}
    for one in holding.ended:
        parts.get(one.seq, ended).append(one)
    whole = [found for seq, found in parts.items() if len(found) == holding.lists[seq]]
    return ended + [_as_one(found) for found in whole]


def _as_one(found: Sequence[Ended]) -> Ended:
    """It fails with the first of its inputs that failed, which `part` names then."""
    parts = sorted(found, key=lambda one: one.part)
    failed = next((one for one in parts if isinstance(one.output, BaseException)), None)
    return Ended(
        parts[0].seq,
        sum(one.size for one in parts),
        max(one.wait_ms for one in parts),
        max((one.launch_id for one in parts if one.launch_id is not None), default=None),
        failed.output if failed else Several(one.output for one in parts),
        sum(one.device_us for one in parts),
        failed.part if failed else 0,
    )
