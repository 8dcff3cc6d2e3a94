"""Items that are lists, taken apart and put together."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st

from jobs.ids import new
from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Limits
from jobs.store.queue.claim import Lease
from workers.engines.protocol import InvalidInput, RateLimited, Transient
from workers.items import results
from workers.items.in_flight import ClaimedBatch, InFlightSlice, ItemOutcome
from workers.items.inputs import expand_lists
from workers.items.results import join_lists

MINILM, ECHO = SAMPLES.resolve("minilm"), SAMPLES.resolve("echo")


def slice_of(items: int) -> InFlightSlice:
    [made] = ClaimedBatch([Lease(new(), 0, items, 1, "tenant", "minilm@1", "{}")]).slices
    made.expect(items)
    return made


def ended_parts(made: InFlightSlice, seq: int, *outputs: Any) -> list[ItemOutcome]:
    made.expect_parts(seq, len(outputs))
    return [
        ItemOutcome(seq, 10 + n, float(n), 70 + n, output, 5, n) for n, output in enumerate(outputs)
    ]


def row_of(*outputs: Any) -> tuple[list[Any], list[Any]]:
    """Returns the rows of a list whose inputs ended so."""
    made = slice_of(1)
    made.add(ended_parts(made, 0, *outputs))
    assert made.finished
    return results.rows(made, Limits())


def test_items_without_a_list_are_left_alone() -> None:
    seqs, inputs = [0, 1], ["a", [1, 2]]
    made = slice_of(2)
    assert expand_lists(MINILM, made, [0], ["a"]) == ([0], ["a"], ())
    assert expand_lists(MINILM, made, seqs, inputs) == (seqs, inputs, [0, 0])
    assert expand_lists(ECHO, made, seqs, [["a"], ["b"]]) == (seqs, [["a"], ["b"]], [0, 0])
    for refused in ([], ["a", 7], ["a"] * 2049):
        assert expand_lists(MINILM, made, [0], [refused]) == ([0], [refused], [0])
    assert (made.lists, made.pending) == ({}, 2)


def test_a_list_becomes_its_inputs_and_more_will_end() -> None:
    made = slice_of(3)
    found = expand_lists(MINILM, made, [4, 5, 6], [["a", [1]], "b", ["c"]])
    assert found == ([4, 4, 5, 6], ["a", [1], "b", "c"], [0, 1, 0, 0])
    assert (made.lists, made.pending) == ({4: 2, 6: 1}, 4)


def test_a_list_is_one_row_in_its_own_order_with_the_sums_of_its_inputs() -> None:
    made = slice_of(1)
    parts = ended_parts(made, 0, np.array([1.5], "f4"), np.array([2.5], "f4"), [3])
    made.add(parts[2:])
    assert not made.finished
    made.add(parts[1::-1])
    assert made.finished
    [row], attempts = results.rows(made, Limits())
    assert (row.outcome, row.output, attempts) == ("succeeded", "[[1.5],[2.5],[3]]", [])
    assert (row.units, row.wait_ms, row.launch_id, row.device_us) == (33, 2.0, 72, 15)


def test_a_list_fails_with_the_first_that_failed_or_is_tried_again_as_one() -> None:
    [row], _ = row_of([1.0], InvalidInput("odd"), RuntimeError("broken"))
    words = "input 1 of the list: odd"
    assert orjson.loads(row.error or "") == {"code": "invalid_input", "message": words}
    assert (row.seq, row.output, row.device_us) == (0, None, 15)
    [row], _ = row_of([1.0], [float("nan")])
    assert orjson.loads(row.error or "")["code"] == "invalid_output"
    rows, [attempt] = row_of([1.0], Transient("busy"), [2.0])
    assert rows == []
    assert (attempt.seq, attempt.n, attempt.device_us) == (0, 1, 15)
    assert orjson.loads(attempt.error)["message"] == "input 1 of the list: busy"
    _, [attempt] = row_of([1.0], RateLimited("slower", 60.0))
    assert attempt.delay_s >= 60


def test_a_list_of_which_a_part_was_taken_back_has_not_ended() -> None:
    made = slice_of(3)
    one, other = ended_parts(made, 0, [1], [2]), ended_parts(made, 1, [3], InvalidInput("odd"))
    made.add([*one, other[1], ItemOutcome(2, 1, 0.0, 1, "whole")])
    made.withdraw(1)
    assert made.finished
    assert sorted(outcome.seq for outcome in join_lists(made)) == [0, 2]


@given(st.data())
def test_whatever_is_launched_and_taken_back_each_item_ends_once_or_not(data: Any) -> None:
    """Items are texts (0) or lists of so many; some of the inputs are forgotten."""
    kinds: Sequence[int] = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=8))
    values = [["x"] * many if many else "x" for many in kinds]
    made = slice_of(len(values))
    seqs, inputs, parts = expand_lists(MINILM, made, range(len(values)), values)
    entries = list(zip(seqs, parts or [0] * len(inputs), strict=True))
    kept = data.draw(st.lists(st.booleans(), min_size=len(entries), max_size=len(entries)))
    random.Random(1).shuffle(entries)
    assert made.pending == len(entries)
    for (seq, part), keep in zip(entries, kept, strict=True):
        assert not made.finished
        if keep:
            made.add([ItemOutcome(seq, 1, 0.0, 1, f"{seq}.{part}", 0, part)])
        else:
            made.withdraw(1)
    assert made.finished
    lost = {seq for (seq, _), keep in zip(entries, kept, strict=True) if not keep}
    rows, attempts = results.rows(made, Limits())
    assert attempts == []
    assert {row.seq: orjson.loads(row.output or "") for row in rows} == {
        seq: [f"{seq}.{part}" for part in range(many)] if many else f"{seq}.0"
        for seq, many in enumerate(kinds)
        if seq not in lost
    }
