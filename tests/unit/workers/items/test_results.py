"""Outputs as JSON that can be stored, or errors that can; items that are lists, taken apart and put
together."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import vectors
from jobs.calls.messages import Reply, pack_replies, unpack_replies
from jobs.ids import new
from jobs.models.builtin_models import SAMPLES
from jobs.models.inputs.generation import TokenUsage
from jobs.models.model import Limits, Model
from jobs.store.queue.claim import Lease
from jobs.store.queue.settle import Result
from workers.engines import frames
from workers.engines.protocol import InvalidInput, RateLimited, Transient
from workers.items import results
from workers.items.in_flight import ClaimedBatch, InFlightSlice, ItemOutcome
from workers.items.inputs import expand_lists
from workers.items.results import join_lists

INF, NAN = float("inf"), float("nan")


def recorded(output: Any, tokens: TokenUsage | None = None) -> Result:
    """The row of an item that ended so."""
    return row_of(ItemOutcome(0, 3, 1.5, 7, output, tokens=tokens))


def row_of(*parts: ItemOutcome) -> Result:
    """The row of one item, which is a list if it has several parts."""
    [in_flight] = ClaimedBatch([Lease(new(), 0, 1, 1, "tenant", "model@1", "{}")]).slices
    in_flight.expect(1)
    if len(parts) > 1:
        in_flight.expect_parts(0, len(parts))
    in_flight.add(parts)
    [row], _ = results.rows(in_flight, Limits())
    return row


TOKENS = TokenUsage(10, 4, 3)


def test_tokens_of_an_item_go_with_its_result_and_those_of_a_list_are_its_inputs() -> None:
    for output in ("text", {"a": 1}, InvalidInput("wrong")):
        assert recorded(output, TOKENS).tokens == TOKENS
    parts = enumerate([TOKENS, None, TOKENS])
    row = row_of(*(ItemOutcome(0, 3, 1.5, 7, "x", part=n, tokens=each) for n, each in parts))
    assert row.tokens == TokenUsage(20, 8, 6)


def test_cuts_of_an_item_that_succeeded_go_with_its_result() -> None:
    for output in ("text", {"a": 1}, np.float32([1, 2])):
        assert row_of(ItemOutcome(0, 3, 1.5, 7, output, truncated=4)).truncated == 4
    assert row_of(ItemOutcome(0, 3, 1.5, 7, InvalidInput("wrong"), truncated=4)).truncated == 0
    parts = enumerate([4, 0, 5])
    row = row_of(*(ItemOutcome(0, 3, 1.5, 7, "x", part=n, truncated=cut) for n, cut in parts))
    assert row.truncated == 9


def test_cuts_that_the_column_does_not_hold_are_its_most_or_none() -> None:
    for output in ("text", {"a": 1}):
        for cut, held in ((2**40, 2**31 - 1), (-5, 0)):
            assert row_of(ItemOutcome(0, 3, 1.5, 7, output, truncated=cut)).truncated == held


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("é\n", '"é\\n"'),
        (None, "null"),
        ({"a": [1, 2.5, True]}, '{"a":[1,2.5,true]}'),
        (("a", 1), '["a",1]'),
        (np.array([0.1, 2], dtype=np.float32), "[0.1,2.0]"),
        (np.float32(0.1), "0.1"),
        (np.int64(3), "3"),
        (np.array(1.5), "1.5"),
        (np.array([[1, 2], [3, 4]]).T, "[[1,3],[2,4]]"),
        (np.array(["a", "b"]), '["a","b"]'),
        (np.array([1.5], dtype=">f4"), "[1.5]"),
        ("a backslash and u0000: \\u0000", '"a backslash and u0000: \\\\u0000"'),
    ],
)
def test_outputs_are_stored_as_json(output: Any, text: str) -> None:
    row = recorded(output)
    assert (row.outcome, row.error) == ("succeeded", None)
    assert shown(row.output) == text


def shown(output: str | bytes | None) -> str | None:
    """The output as it is read."""
    if isinstance(output, bytes):
        return vectors.as_json(f"{vectors.MARK}{output.hex()}").decode()
    return output


NO_NUMBERS = [NAN, INF, -INF, [1.0, NAN], {"a": {"b": [INF]}}, (1.0, (NAN,)), np.float32("nan")]
NO_NUMBERS += [np.array([1.0, NAN]), np.array([[1.0], [INF]], dtype=np.float16), 2**70]
NO_TEXTS = ["\0", ["a\0b"], ("a\0b",), {"a\0": 1}, np.str_("a\0b"), np.array(["a\0b"])]
NO_TEXTS += ["\ud800", ["\udfff"], {"\ud800": 1}]
NO_JSON = [{1, 2}, b"bytes", object(), {1: "a"}, [np.zeros(2)], np.array([1 + 2j])]
NO_JSON += [np.array([object()]), nested(2000)]


@pytest.mark.parametrize("output", [*NO_NUMBERS, *NO_TEXTS, *NO_JSON])
def test_what_can_not_be_stored_fails_its_item_alone(output: Any) -> None:
    row = recorded(output)
    assert (row.outcome, row.output) == ("failed", None)
    assert orjson.loads(row.error or "")["code"] == "invalid_output"
    assert_storable(row.error or "")


def assert_storable(error: str) -> None:
    """Valid JSON, in valid UTF-8, without the one character that PostgreSQL refuses."""
    stored = orjson.loads(error.encode())
    assert set(stored) == {"code", "message"}
    assert stored["message"]
    assert "\0" not in stored["message"]


@given(st.text(st.characters()))
def test_whatever_an_exception_says_can_be_stored_and_sent(words: str) -> None:
    assert_storable(recorded(RuntimeError(words)).error or "")
    _, error = results.outcome(RuntimeError(words))
    [(_, output, sent, *_)] = unpack_replies(pack_replies([Reply("a", None, error, 1, {})], "api"))
    assert (output, sent) == (None, list(error or ()))


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InvalidInput("too odd"), "invalid_input", "too odd"),
        (RuntimeError("it broke"), "engine_error", "it broke"),
        (RuntimeError(), "engine_error", "RuntimeError"),
        (RuntimeError("\0"), "engine_error", "RuntimeError"),
        (RuntimeError("\ud800 a\0b"), "engine_error", "? ab"),
        (Unspeakable(), "engine_error", "Unspeakable"),
        (results.WrongNumberOfOutputs("2 for 1"), "invalid_output", "2 for 1"),
    ],
    ids=type,
)
def test_an_error_says_whose_fault_it_is(error: Exception, code: str, message: str) -> None:
    row = recorded(error)
    assert orjson.loads(row.error or "") == {"code": code, "message": message}


def test_a_row_tells_where_its_item_was() -> None:
    row = recorded("x")
    assert (row.seq, row.units, row.wait_ms, row.launch_id) == (0, 3, 1.5, 7)
    assert row.tenant == "tenant"


CALLS = {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {}}]}
USABLE: dict[tuple[str, Any], list[Any]] = {
    ("anthropic", "chat"): ["hi", {"choices": [{"message": {"content": None}}]}],
    ("openai", "chat"): ["hi", {"a": 1}, None],
    ("openai", "embedding"): [[1, 2.5], [[1.0], [2]], np.ones(3), np.ones((2, 3), "f4"), []],
    ("native", "chat"): [{"a": 1}],
    ("native", "embedding"): ["x"],
}
UNUSABLE: dict[tuple[str, Any], list[Any]] = {
    ("anthropic", "chat"): [
        {"a": 1}, 5, np.ones(3), {"choices": []}, {"choices": [{"message": CALLS}]},
    ],
    ("anthropic_part", "chat"): [None],
    ("openai", "embedding"): ["x", {}, [None], [[1], "a"], [True], [1e300], np.array([1e300]), 5],
}  # fmt: skip


def test_an_output_of_which_a_dialect_can_make_no_answer_fails_its_item() -> None:
    for ends, kinds in (("succeeded", USABLE), ("failed", UNUSABLE)):
        for (name, task), outputs in kinds.items():
            lease = Lease(new(), 0, len(outputs), 1, "t", "m@1", "{}", dialect=name)
            [made] = ClaimedBatch([lease]).slices
            made.expect(len(outputs))
            made.add([ItemOutcome(n, 1, 0.0, 1, output) for n, output in enumerate(outputs)])
            rows, _ = results.rows(made, Limits(), Model("m", "1", "echo", task=task))
            found = [(row.outcome, row.error and orjson.loads(row.error)["code"]) for row in rows]
            code = None if ends == "succeeded" else "invalid_output"
            assert found == [(ends, code)] * len(outputs), (name, task)


def test_frames_that_items_share_are_stored_once_a_slice() -> None:
    def failed(words: str) -> Exception:
        error = RuntimeError(words)
        frames.keep(error, error)
        return error

    [in_flight] = ClaimedBatch([Lease(new(), 10, 14, 1, "tenant", "model@1", "{}")]).slices
    in_flight.expect(4)
    outputs = [failed("a"), failed("b"), failed("a"), InvalidInput("wrong")]
    in_flight.add([ItemOutcome(10 + n, 3, 1.5, 7, output) for n, output in enumerate(outputs)])
    rows, _ = results.rows(in_flight, Limits())
    errors = [orjson.loads(row.error or "") for row in rows]
    assert errors[0]["traceback"].endswith("RuntimeError: a")
    assert errors[1]["traceback"].endswith("RuntimeError: b")
    assert errors[2] == {"code": "engine_error", "message": "a", "traceback_of": 10}
    assert errors[3].keys() == {"code", "message"}
    assert all(list(error)[-1].startswith("traceback") for error in errors[:3])


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


def row_of_list(*outputs: Any) -> tuple[list[Any], list[Any]]:
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
    [row], _ = row_of_list([1.0], InvalidInput("odd"), RuntimeError("broken"))
    words = "input 1 of the list: odd"
    assert orjson.loads(row.error or "") == {"code": "invalid_input", "message": words}
    assert (row.seq, row.output, row.device_us) == (0, None, 15)
    [row], _ = row_of_list([1.0], [float("nan")])
    assert orjson.loads(row.error or "")["code"] == "invalid_output"
    rows, [attempt] = row_of_list([1.0], Transient("busy"), [2.0])
    assert rows == []
    assert (attempt.seq, attempt.n, attempt.device_us) == (0, 1, 15)
    assert orjson.loads(attempt.error)["message"] == "input 1 of the list: busy"
    _, [attempt] = row_of_list([1.0], RateLimited("slower", 60.0))
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
