"""Items on their way in: escaped rows, slices, and faults by their lines."""

import io
import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from os import SEEK_END
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import ids
from jobs.errors import Invalid, StorageFull, TooLarge, TooManyItems
from jobs.identity import Limit
from jobs.intake import custom_ids, spool
from jobs.intake.feeding import add_array, add_lines
from jobs.intake.lines import bounded_lines, without_last_blanks
from jobs.intake.spool import Intake
from jobs.models.model import Limits, Model
from tests.support.json_values import custom_ids as names_of_items
from tests.support.json_values import json_values


def new(
    slice_items: int = 1000, max_items: int = 100, tenant: str = "default", engine: str = "echo",
    **options: Any,
) -> Intake:  # fmt: skip
    model = Model(engine, "1", engine, limits=Limits(slice_items=slice_items))
    return Intake(ids.new(), tenant, model, strict=True, max_items=max_items, **options)


def columns(taken: Intake) -> Iterator[list[str | None]]:
    """The columns of each row as COPY reads them."""
    for line in taken.rows.read().decode().removesuffix("\n").split("\n"):
        yield [None if field == "\\N" else unescape(field) for field in line.split("\t")]


def rows(values: Iterable[Any], **options: Any) -> list[list[str | None]]:
    """The rows of a job of these items; job id and tenant aside."""
    with closing(new(**options)) as taken:
        add_array(taken, values)
        return [row[2:] for row in columns(taken)]


def bounds(values: Iterable[Any], **options: Any) -> list[int]:
    with closing(new(**options)) as taken:
        add_array(taken, values)
        return list(taken.bounds)


def unescape(field: str) -> str:
    special = {"t": "\t", "n": "\n", "r": "\r"}
    return re.sub(r"\\(.)", lambda found: special.get(found[1], found[1]), field, flags=re.DOTALL)


def refusal(taken: Intake, *lines: bytes) -> list[tuple[int | None, str, str]]:
    with closing(taken), pytest.raises(Invalid) as caught:
        add_lines(taken, lines)
    return [(fault.line, fault.code, fault.message) for fault in caught.value.faults]


@given(st.lists(st.tuples(names_of_items, json_values), min_size=1, unique_by=lambda pair: pair[0]))
def test_rows_unescaped_hold_what_the_client_sent(sent: list[tuple[str, Any]]) -> None:
    found = rows({"custom_id": id, "input": value} for id, value in sent)
    assert [(custom_id, json.loads(text or "")) for _, custom_id, _, _, text in found] == sent
    numbers = [(str(seq), None) for seq in range(len(sent))]
    assert [(seq, params) for seq, _, params, _, _ in found] == numbers


def test_rows_name_job_and_tenant_and_are_the_same_of_lines_and_of_an_array() -> None:
    with closing(new(tenant="a\t\\b\n")) as taken:
        add_array(taken, ["x"])
        [[job, tenant, *_]] = columns(taken)
    assert tenant == "a\t\\b\n"
    assert UUID(job)
    values = ["a", {"custom_id": "é", "input": {"b": "\\"}}, 7]
    with closing(new()) as taken:
        add_lines(taken, [json.dumps(value).encode() + b"\r\n" for value in values])
        assert [row[2:] for row in columns(taken)] == rows(values)


# -- slices


_TEXTS = st.text(st.sampled_from('ab"\\\t\0ü\ud800'), max_size=12)
_ITEMS = _TEXTS | st.builds(lambda text: {"input": text}, _TEXTS) | st.just(7)


def outcome(taken: Intake, add: Callable[[Intake], None]) -> tuple[Any, ...]:
    """Rows without the job's id, slices and bytes of an intake; or what it raises."""
    with closing(taken):
        try:
            add(taken)
        except (Invalid, StorageFull, TooLarge) as error:
            return type(error), error.detail, getattr(error, "faults", [])
        rows = [line.split(b"\t", 1)[1] for line in taken.rows.read().splitlines()]
        return rows, list(taken.bounds), list(taken.inputs), taken.input_bytes, taken.total


def one_by_one(values: Sequence[Any], number_lines: bool) -> Callable[[Intake], None]:
    def add(taken: Intake) -> None:
        for n, value in enumerate(values):
            taken.add(value, () if number_lines else ("items", n), n + 1 if number_lines else None)
        taken.finish(lambda seq: ((), seq + 1) if number_lines else (("items", seq), None))

    return add


@given(
    st.lists(_TEXTS, min_size=1, max_size=30) | st.lists(_ITEMS, min_size=1, max_size=9),
    st.integers(1, 8),
    st.sampled_from((25, 100)),
    st.sampled_from((300, 10_000)),
    st.sampled_from((60, 10_000)),
)
def test_texts_that_are_taken_at_once_are_stored_as_one_by_one(
    values: list[Any], slice_items: int, max_items: int, max_bytes: int, slice_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "_SLICE_BYTES", slice_bytes)
        patch.setattr(spool, "_TOGETHER", 4)

        def end(add: Callable[[Intake], None]) -> tuple[Any, ...]:
            return outcome(new(slice_items, max_items, max_bytes=max_bytes), add)

        assert end(lambda taken: add_array(taken, values)) == end(one_by_one(values, False))
        lines = [json.dumps(value).encode() + b"\n" for value in values]
        assert end(lambda taken: add_lines(taken, lines)) == end(one_by_one(values, True))


def test_slices_are_cut_by_the_number_of_items_and_inputs_and_before_they_outgrow_their_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert bounds(["x"] * 7, slice_items=3) == [0, 3, 6, 7]
    values = ["a", ["b", "c"], "d", ["e"] * 9, ["f"] * 3, [1, 2, 3, 4, 5], "g"]
    with closing(new(slice_items=4, engine="minilm")) as taken:
        add_array(taken, values)
        assert list(taken.bounds) == [0, 3, 4, 6, 7]
        assert list(taken.inputs) == [2, 9, 2, 1]  # rounded up: 4 inputs of 3 items
    monkeypatch.setattr(spool, "_SLICE_BYTES", 100)
    sizes = [40, 60, 3, 502, 40]  # as JSON, quotes included
    assert bounds("x" * (size - 2) for size in sizes) == [0, 2, 3, 4, 5]
    item = {"input": "x" * 19, "params": {"normalize": False}}  # 40 bytes
    assert bounds([item] * 5, engine="minilm") == [0, 2, 4, 5]
    item = {"input": "x", "custom_id": "é\\", "params": {"normalize": False}}
    with closing(new(engine="minilm")) as taken:
        taken.add(item, (), reply=b'"base64"')
        assert taken.input_bytes == 3 + 3 + 19 + 8


@given(st.lists(st.integers(0, 120), min_size=1), st.integers(1, 5))
def test_every_item_is_in_one_slice_and_no_slice_is_empty(
    lengths: list[int], slice_items: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "_SLICE_BYTES", 100)
        found = bounds(["x" * length for length in lengths], slice_items=slice_items)
    assert (found[0], found[-1]) == (0, len(lengths))
    for start, stop in pairwise(found):
        assert 1 <= stop - start <= slice_items
        assert stop - start == 1 or sum(lengths[start:stop]) + 2 * (stop - start) <= 100


# -- faults


def test_a_duplicate_is_named_with_both_places() -> None:
    lines = [b'{"custom_id": "%b", "input": 1}' % id for id in (b"a", b"b", b"b", b"a", b"a")]
    assert refusal(new(), *lines) == [
        (3, "duplicate_custom_id", "custom_id is already that of line 2"),
        (4, "duplicate_custom_id", "custom_id is already that of line 1"),
        (5, "duplicate_custom_id", "custom_id is already that of line 1"),
    ]
    with closing(new()) as taken, pytest.raises(Invalid) as caught:
        add_array(taken, ["x", {"custom_id": "a", "input": 1}, {"custom_id": "a", "input": 2}])
    [fault] = caught.value.faults
    assert fault.loc == ("items", 2, "custom_id")
    assert fault.message == "custom_id is already that of item 1"


def test_of_names_that_share_a_hash_the_equal_ones_are_duplicates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(custom_ids, "hash", lambda text: 7, raising=False)
    names = ["a", "b", "\\N", "\\", "N"]
    found = rows({"custom_id": name, "input": 1} for name in names)
    assert [custom_id for _, custom_id, *_ in found] == names
    lines = [b'{"custom_id": "%b", "input": 1}' % id for id in (b"a", b"b", b"a")]
    assert [line for line, *_ in refusal(new(), *lines)] == [3]


def test_each_line_that_can_not_be_read_is_named_and_counted() -> None:
    found = refusal(new(), b'"fine"', b"{", b"", b"  \n", b"1e400")
    assert [(line, code) for line, code, _ in found] == [(n, "malformed") for n in (2, 3, 4, 5)]
    assert "empty line" in found[1][2]
    assert [code for _, code, _ in refusal(new(), b"\n", b" \n")] == ["empty"]
    lines = [b"{", b'{"custom_id": "a", "input": 1}', b"{", b'{"custom_id": "a", "input": 1}']
    assert (4, "duplicate_custom_id") in {(line, code) for line, code, _ in refusal(new(), *lines)}
    twice = b'{"custom_id": "a", "input": 1}'
    found = refusal(new(), twice, b"{", twice, b"{")
    assert [line for line, *_ in found] == [2, 3, 4]
    assert [code for _, code, _ in refusal(new())] == ["empty"]


def test_blank_lines_at_the_end_are_no_items_and_those_before_keep_their_numbers() -> None:
    with closing(new()) as taken:
        add_lines(taken, [b'"a"\n', b'"b"\n', b"\n", b"  \r\n", b""])
        assert taken.total == 2
    found = refusal(new(), b'"a"\n', b"\n", b"\n", b'"b"\n', b"\n")
    assert [line for line, *_ in found] == [2, 3]
    assert list(without_last_blanks([None, b"\n", None, b"\n"])) == [None, b"\n", None]


@pytest.mark.parametrize("mark", [b"", BOM_UTF8])
def test_lines_of_a_file_are_bounded_with_a_byte_order_mark_and_without(mark: bytes) -> None:
    def lines(content: bytes) -> list[bytes | None]:
        return list(bounded_lines(io.BytesIO(mark + content), 4))

    assert lines(b"") == []
    assert lines(b"abc\nabcd\nx") == [b"abc\n", None, b"x"]
    assert lines(b"abcdefgh\nabcd") == [None, b"abcd"]
    assert lines(b"abcd") == [b"abcd"]
    assert lines(b"abcde") == [None]
    assert lines(b"\n" + BOM_UTF8 + b"\n") == [b"\n", BOM_UTF8 + b"\n"], "only at the beginning"


def then_nothing(*lines: bytes) -> Iterator[bytes]:
    """Lines of which the last is the one that ends the intake."""
    yield from lines
    raise AssertionError("nobody reads on")


def test_too_many_items_are_refused_at_the_first_beyond() -> None:
    with closing(new(max_items=2)) as taken, pytest.raises(Invalid) as caught:
        add_lines(taken, then_nothing(b"1", b"{", b"3"))
    found = [(fault.line, fault.code, fault.message) for fault in caught.value.faults]
    assert found[0] == (None, "too_many", "a job has at most 2 items")
    assert [(line, code) for line, code, _ in found[1:]] == [(2, "malformed")]
    for options in ({"max_items": 2}, {"limits": (Limit(queued_items=2),)}):
        with closing(new(**options)) as taken, pytest.raises((Invalid, TooManyItems)):
            add_lines(taken, then_nothing(b'"a"', b'"b"', b'"c"'))


def test_a_job_lists_a_thousand_faults_and_then_reads_no_more() -> None:
    said = "at least 1000 faults, nothing was stored"
    with closing(new(max_items=9999)) as taken, pytest.raises(Invalid, match=said) as caught:
        add_lines(taken, then_nothing(*[b"{"] * 1001))
    assert [fault.line for fault in caught.value.faults] == list(range(1, 1001))
    assert len(refusal(new(max_items=9999), *[b"{"] * 1000)) == 1000
    for names in ([b"a"], [b"a", b"b"], [b"%d" % n for n in range(1500)]):
        lines = [b'{"custom_id": "%b", "input": 1}' % name for name in names * (3000 // len(names))]
        found = refusal(new(max_items=9999), *lines)
        assert [line for line, *_ in found] == list(range(len(names) + 1, len(names) + 1001))


def test_no_more_bytes_are_spooled_than_the_limit_and_what_a_tenant_may_store() -> None:
    with closing(new(max_items=9999, max_bytes=10_000)) as taken:
        with pytest.raises(TooLarge, match="more than 10,000 bytes"):
            add_lines(taken, [b'"x"'] * 5000)
        assert 9900 < taken.rows.seek(0, SEEK_END) <= 10_000
    limits = Limit(stored_bytes=500), Limit(model="echo", stored_bytes=30)
    lines = then_nothing(b'"ten chars"', b'"ten chars"', b'"ten chars"')
    with closing(new(limits=limits)) as taken, pytest.raises(StorageFull) as caught:
        add_lines(taken, lines)
    assert caught.value.bound.most == 30
