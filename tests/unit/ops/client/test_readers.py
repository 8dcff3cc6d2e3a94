"""What is submitted: each format gives the items that are in it, or says what is wrong where."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ops.client.readers import Input, InputError, format_of


def items(path: Path, content: bytes, **how: str) -> list[Any]:
    path.write_bytes(content)
    given = Input(str(path), format_of(str(path)), **how)
    return [json.loads(line) for line in given.lines()]


def refused(path: Path, content: bytes, **how: str) -> str:
    with pytest.raises(InputError) as found:
        items(path, content, **how)
    return str(found.value)


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
@pytest.mark.parametrize("gzipped", [False, True])
def test_each_suffix_has_its_format(
    tmp_path: Path, name: str, content: bytes, found: list[Any], gzipped: bool
) -> None:
    if gzipped:
        assert items(tmp_path / f"{name}.gz", gzip.compress(content)) == found
    else:
        assert items(tmp_path / name, content) == found


def test_csv_columns_are_taken_by_name(tmp_path: Path) -> None:
    content = '\ufeffid,note,text\r\na-1,,"hello, world"\r\n'.encode()
    found = items(tmp_path / "a.csv", content, column="text", id_column="id")
    assert found == [{"custom_id": "a-1", "input": "hello, world"}]


def test_a_large_field_is_read(tmp_path: Path) -> None:
    assert items(tmp_path / "a.csv", b"text\n" + b"x" * 300_000) == ["x" * 300_000]


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
        (
            "a.jsonl.gz",
            gzip.compress(b'"x"\n' * 9, mtime=0)[:-9],
            {},
            "no gzip file, or a damaged one",
        ),
        ("a.json", b"[1,", {}, "not valid JSON"),
        ("a.parquet", b"", {}, ".parquet is not read; make JSON lines of it"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    tmp_path: Path, name: str, content: bytes, how: dict[str, str], why: str
) -> None:
    said = refused(tmp_path / name, content, **how)
    assert why in said
    assert name in said


def test_a_file_can_be_read_again_and_standard_input_cannot(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('"x"\n')
    lines = Input(str(tmp_path / "a.jsonl"), "jsonl").lines()
    assert list(lines) == list(lines) == [b'"x"\n']
    assert not isinstance(lines, Iterator)
    assert isinstance(Input("-", "jsonl").lines(), Iterator)
