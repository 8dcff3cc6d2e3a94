"""What is submitted: each format gives the items that are in it, or says what is wrong where."""

import gzip
import json
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from millrace.readers import Input, InputError, format_of
from tests.support.cases import each


def items(path: Path, content: bytes, **how: str) -> list[Any]:
    path.write_bytes(content)
    given = Input(str(path), format_of(str(path)), **how)
    return [json.loads(line) for line in given.lines()]


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.jsonl", b'"x"\r\n{"input": "y"}', ["x", {"input": "y"}]),
        ("a.ndjson", b'"x"\n', ["x"]),
        ("a.txt", "\ufeffé\r\n\ntwo words \n".encode(), ["\ufeffé", "", "two words "]),
        ("a.json", b'[\n "x",\n {"input": 1}\n]', ["x", {"input": 1}]),
        ("a.json", b'{"input": 1}', [{"input": 1}]),
        ("a", b'"quoted"\n', ['"quoted"']),
        ("a.csv", b'text\nx\n\n"y,\nz"\n', ["x", "y,\nz"]),
    ],
)
def test_suffixes_have_formats(tmp_path: Path, name: str, content: bytes, found: list[Any]) -> None:
    assert items(tmp_path / name, content) == found
    assert items(tmp_path / f"{name}.gz", gzip.compress(content)) == found


def test_csv_columns_are_taken_by_name(tmp_path: Path) -> None:
    content = '\ufeffid,note,text\r\na-1,,"hello, world"\r\n'.encode()
    found = items(tmp_path / "a.csv", content, column="text", id_column="id")
    assert found == [{"custom_id": "a-1", "input": "hello, world"}]
    large = "x" * 300_000
    assert items(tmp_path / "a.csv", f"text\n{large}".encode()) == [large]


@pytest.mark.parametrize(
    ("name", "content", "how", "why"),
    [
        ("a.csv", b"a,b\n1,2\n", {}, "has several columns; name one with column: a, b"),
        ("a.csv", b"a,b\n1,2\n", {"column": "c"}, "has no column 'c'; name one with column"),
        ("a.csv", b"a\n1\n", {"id_column": "c"}, "has no column 'c'; name one with id_column"),
        ("a.csv", b"a,b\n1,2\n3\n", {"column": "a"}, "line 3: 1 fields, where the header has 2"),
        ("a.csv", b'a\n"open\n', {}, "line 2: unexpected end of data"),
        ("a.csv", b"", {}, "its first line must name the columns"),
        ("a.csv", b"a\n\xff\n", {}, "not UTF-8"),
        ("a.txt", b"x\n\xff\n", {}, "line 2: not UTF-8"),
        ("a.jsonl.gz", b"plain", {}, "no gzip file"),
        ("a.jsonl.gz", gzip.compress(b'"x"', mtime=0)[:-9], {}, "no gzip file, or a damaged one"),
        ("a.json", b"[1,", {}, "not valid JSON"),
        ("a.parquet", b"x", {}, "a.parquet: no Parquet file, or a damaged one"),
        ("a.parquet.gz", b"", {}, "Parquet is read from a file, without gzip around it"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    tmp_path: Path, name: str, content: bytes, how: dict[str, str], why: str
) -> None:
    with pytest.raises(InputError, match=re.escape(why)) as found:
        items(tmp_path / name, content, **how)
    assert name in str(found.value)


def test_a_file_can_be_read_again_and_standard_input_cannot(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('"x"\n')
    lines = Input(str(tmp_path / "a.jsonl"), "jsonl").lines()
    assert list(lines) == list(lines) == [b'"x"\n']
    assert not isinstance(lines, Iterator)
    assert isinstance(Input("-", "jsonl").lines(), Iterator)


def table(path: Path, **columns: list[Any]) -> str:
    parquet.write_table(pyarrow.table(columns), path)
    return str(path)


def test_rows_of_parquet_are_items_of_any_json_type(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", vector=[[0.5, 1.0], [2.0]], id=[7, None], text=["x", "y"])
    ids = Input(path, "parquet", column="vector", id_column="id")
    items = [{"custom_id": "7", "input": [0.5, 1.0]}, [2.0]]
    assert [json.loads(line) for line in ids.lines()] == items
    text = Input(path, "parquet", column="text")
    assert [json.loads(line) for line in text.lines()] == ["x", "y"]
    assert list(text.lines()) == list(text.lines())  # read anew each time
    more = table(tmp_path / "more.parquet", n=list(range(2500)))  # than are read at once
    assert [json.loads(line) for line in Input(more, "parquet").lines()] == list(range(2500))


def test_faults_of_parquet_name_the_column_or_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(tmp_path / "a.parquet", a=["x"], b=[datetime(2026, 1, 1)])
    faults: list[tuple[dict[str, str], str]] = [
        ({}, "has several columns; name one with column: a, b"),
        ({"column": "c"}, "has no column 'c'; name one with column: a, b"),
        ({"column": "a", "id_column": "c"}, "name one with id_column: a, b"),
        ({"column": "b"}, "column 'b': Object of type datetime is not JSON serializable"),
    ]
    for (how, said), case in each(faults):
        with case, pytest.raises(InputError, match=re.escape(said)):
            list(Input(path, "parquet", **how).lines())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install 'millrace\[parquet\]'"):
        list(Input(path, "parquet", column="a").lines())
