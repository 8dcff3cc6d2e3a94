"""Outputs as JSON that can be stored, or errors that can."""

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.calls.messages import Reply, pack_replies, unpack_replies
from jobs.ids import new
from jobs.models.inputs.generation import TokenUsage
from jobs.models.model import Limits
from jobs.store.queue.claim import Lease
from jobs.store.queue.settle import Result
from workers.engines import frames
from workers.engines.protocol import InvalidInput
from workers.items import results
from workers.items.in_flight import ClaimedBatch, ItemOutcome

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
    assert row.output == text


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
