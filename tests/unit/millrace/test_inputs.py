"""Inputs of any kind become lines that can be sent again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from millrace import InputError, Item
from millrace.inputs import lines_of
from tests.unit.millrace.servers import Recorder, answered_by


def items(inputs: Any, **how: str) -> list[Any]:
    lines = lines_of(inputs, **how)
    first, again = list(lines), list(lines)
    assert first == again
    return [json.loads(line) for line in first]


class Frame:
    """A data frame, as far as pandas and polars agree: named columns that can be iterated."""

    def __init__(self, **columns: Any) -> None:
        self.columns, self._columns = list(columns), columns

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]


@pytest.mark.parametrize(
    ("inputs", "found"),
    [
        (["x", "é\n"], ["x", "é\n"]),
        (("x",), ["x"]),
        ([1, [2.5], None], [{"input": 1}, {"input": [2.5]}, {"input": None}]),
        ([{"a": 1}], [{"input": {"a": 1}}]),
        ([{"input": "x", "custom_id": "a"}], [{"input": "x", "custom_id": "a"}]),
        ([{"input": "x", "color": 1}], [{"input": {"input": "x", "color": 1}}]),
        ([Item("x", "a", {"p": 5})], [{"custom_id": "a", "input": "x", "params": {"p": 5}}]),
        ([b'"x"', b'{"input": 1}\n'], ["x", {"input": 1}]),
        ([np.float32(0.5), np.array([1, 2])], [{"input": 0.5}, {"input": [1, 2]}]),
        (np.array(["x", "y"]), ["x", "y"]),
        (Frame(text=["x", "y"]), [{"input": "x"}, {"input": "y"}]),
    ],
)  # fmt: skip
def test_inputs_are_texts_values_items_or_lines(inputs: Any, found: list[Any]) -> None:
    assert items(inputs) == found


def test_tables_and_files_give_columns_by_name(tmp_path: Path) -> None:
    table = {"id": [7, None], "text": ["x", "y"], "note": ["", ""]}
    wanted = [{"custom_id": "7", "input": "x"}, {"input": "y"}]
    assert items(table, column="text", id_column="id") == wanted
    assert items(Frame(**table), column="text", id_column="id") == wanted
    (tmp_path / "a.txt").write_text("x\ny\n")
    (tmp_path / "a.csv").write_text("id,text\n1,x\n")
    (tmp_path / "a.jsonl").write_text('"x"\n{"input": 2}\n')
    assert items(tmp_path / "a.txt") == ["x", "y"]
    assert items(str(tmp_path / "a.csv"), column="text", id_column="id") == [
        {"custom_id": "1", "input": "x"}
    ]
    assert items(tmp_path / "a.jsonl") == ["x", {"input": 2}]
    with pytest.raises(InputError, match="column and id_column are for CSV"):
        items(tmp_path / "a.txt", column="a")


def test_an_iterator_is_read_once_and_as_far_as_it_is_sent() -> None:
    read: list[int] = []

    def texts() -> Iterator[str]:
        for n in range(4):
            read.append(n)
            yield f"text {n}"

    lines = lines_of(texts())
    assert read == []
    begun = iter(lines)
    assert [next(begun), next(begun)] == [b'"text 0"\n', b'"text 1"\n']
    assert read == [0, 1]
    for _ in range(2):
        assert len(list(lines)) == 4  # sent again from the start
        assert read == [0, 1, 2, 3]
    for count in (1, 2):
        begun = iter(lines)
        assert [next(begun) for _ in range(count)]
        begun.close()  # type: ignore[attr-defined]
    assert len(list(lines)) == 4, "those left in their middle are read again"


def test_an_iterator_that_failed_is_never_taken_for_a_shorter_one() -> None:
    def texts() -> Iterator[str]:
        yield from ("x", "y")
        raise httpx.ReadTimeout("late")  # of a request of its own

    lines = lines_of(texts())
    for _ in range(3):
        found: list[bytes] = []
        with pytest.raises(InputError, match="broke off after 2: ReadTimeout: late"):
            found.extend(lines)
        assert found == [b'"x"\n', b'"y"\n']


def test_it_is_not_sent_again(pauses: list[float]) -> None:
    api = Recorder({"id": "job_1", "generation": 1})

    class Texts:
        def __iter__(self) -> Iterator[str]:
            yield "x"
            raise httpx.ReadError("reset")

    for inputs in (iter(Texts()), Texts()):
        with pytest.raises(InputError, match="broke off after 1: ReadError: reset"):
            answered_by(api).jobs.submit("echo", inputs)
    assert (api.seen, pauses) == ([], [])


@pytest.mark.parametrize(
    ("inputs", "how", "why"),
    [
        ("hello", {}, "there is no file 'hello'; give a list"),
        (b"hello", {}, "give a list of inputs, or a path"),
        (7, {}, "not a int"),
        (["x", float("nan")], {}, "input 1 can't be sent as JSON: .*not JSON compliant"),
        (["x", object()], {}, "input 1 can't be sent as JSON: a object is no JSON value"),
        (["x"], {"column": "a"}, "are for tables and CSV files"),
        ({"a": ["x"], "b": ["y"]}, {}, "several columns; name one with column: a, b"),
        ({"a": ["x"], "b": ["y"]}, {"column": "c"}, "no column 'c'; name one with column: a, b"),
        ({"a": ["x"]}, {"id_column": "c"}, "no column 'c'; name one with id_column: a"),
        ({"a": ["x", "y"], "b": ["1"]}, {"column": "a", "id_column": "b"}, "'a' has 2, 'b' has 1"),
        ({"a": ["x"], "b": ["1", "2"]}, {"column": "a", "id_column": "b"}, "'a' has 1, 'b' has 2"),
        ({"a": iter(["x"])}, {}, "the column 'a' is a list_iterator, which has no length"),
        ({"a": ["x"], "b": map(str, [1])}, {"column": "a", "id_column": "b"}, "'b' is a map"),
    ],
)
def test_what_can_not_be_sent_is_said(inputs: Any, how: dict[str, str], why: str) -> None:
    with pytest.raises(InputError, match=why):
        items(inputs, **how)
