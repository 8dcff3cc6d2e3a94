"""Inputs and files of each kind become lines that can be sent again, or what is wrong is said."""

import codecs
import gzip
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from millrace import InputError, Item, UnprocessableEntityError
from millrace.inputs.files import Input
from millrace.inputs.lines import lines_of
from tests.support.cases import each
from tests.unit.millrace.servers import Recorder, answered_by


def read(source: str, **how: Any) -> list[Any]:
    return [json.loads(line) for line in Input(source, **how).lines()]


def items(path: Path, content: bytes, **how: str) -> list[Any]:
    path.write_bytes(content)
    return read(str(path), **how)


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.jsonl", b'"x"\r\n{"input": "y"}', ["x", {"input": "y"}]),
        ("a.ndjson", b'"x"\n', ["x"]),
        ("a.txt", "é\r\n\ntwo \ufeffwords \n".encode(), ["é", "", "two \ufeffwords "]),
        ("a.json", b'[\n "x",\n {"input": 1}\n]', ["x", {"input": 1}]),
        ("a.json", b'{"input": 1}', [{"input": 1}]),
        ("a", b'"quoted"\n', ['"quoted"']),
        ("a.csv", b'\n\r\ntext\nx\n\n"y,\n\nz"\n\n', ["x", "y,\n\nz"]),
        ("a.csv", b'text\rx\r\r"y\rz"\r', ["x", "y\rz"]),
        ("a.csv", b"text\r\nx\r\n\r\ny", ["x", "y"]),
    ],
)
def test_suffixes_have_formats(tmp_path: Path, name: str, content: bytes, found: list[Any]) -> None:
    for begun in (content, codecs.BOM_UTF8 + content):
        assert items(tmp_path / name, begun) == found
        assert items(tmp_path / f"{name}.gz", gzip.compress(begun)) == found


def test_csv_columns_are_taken_by_name(tmp_path: Path) -> None:
    content = '\ufeffid,note,text\r\na-1,,"hello, world"\r\n'.encode()
    found = items(tmp_path / "a.csv", content, column="text", id_column="id")
    assert found == [{"custom_id": "a-1", "input": "hello, world"}]
    without = items(tmp_path / "a.csv", b"id,text\n,x\nNA,y\n", column="text", id_column="id")
    assert without == ["x", {"custom_id": "NA", "input": "y"}]
    large = "x" * 300_000
    assert items(tmp_path / "a.csv", f"text\n{large}".encode()) == [large]


@pytest.mark.parametrize(
    ("name", "content", "how", "why"),
    [
        ("a.csv", b"a,b\n1,2\n", {}, "has several columns; name one with column: a, b"),
        ("a.csv", b"a,b\n1,2\n", {"column": "c"}, "has no column 'c'; name one with column"),
        ("a.csv", b"a\n1\n", {"id_column": "c"}, "has no column 'c'; name one with id_column"),
        ("a.csv", b"a,a\n1,2\n", {"column": "a"}, "has 2 columns 'a'; rename one: a, a"),
        ("a.csv", b'a,b\n"1\n",2\n3\n', {"column": "a"}, "line 4: 1 fields, where the first row"),
        ("a.csv", b'a\nx\n\n"open\ny\n', {}, "line 4: no CSV that can be read: unexpected end"),
        ("a.csv", b"", {}, "its first line must name the columns"),
        ("a.csv", b'a\n"x\r\ny"\n\xff\n', {}, "line 4: not UTF-8"),
        ("a.txt", b"x\n", {"column": "a"}, "texts have no columns"),
        (
            "a.jsonl",
            b'{"a": 1}\n{"b": 1}\n',
            {"column": "a"},
            "line 2: there is no 'a' among its fi",
        ),
        (
            "a.jsonl",
            b'{"a": 1}\n',
            {"id_column": "a"},
            "line 1: column names none among its fields",
        ),
        ("a.jsonl", b'{"a": 1}\n["a"]', {"column": "a"}, "line 2: no object, which has columns"),
        ("a.jsonl", b'{"a": 1}\n{"a"', {"column": "a"}, "line 2: not valid JSON"),
        (
            "a.jsonl",
            b'{"a": NaN}\n',
            {"column": "a"},
            "line 1: NaN and Infinity are no JSON values",
        ),
        (
            "a.json",
            b'[{"a": 1, "id": 0.5}]',
            {"column": "a", "id_column": "id"},
            "element 0: 'id': 0.5 is no id",
        ),
        ("a.txt", b"x\n\xff\n", {}, "line 2: not UTF-8"),
        ("a.jsonl.gz", b"plain", {}, "no gzip file"),
        ("a.jsonl.gz", gzip.compress(b'"x"', mtime=0)[:-9], {}, "no gzip file, or a damaged one"),
        ("a.json", b"[1,", {}, "not valid JSON"),
        ("a.json", b"[1, [NaN]]", {}, "element 1: NaN and Infinity are no JSON values"),
        ("a.json", b"[1e400]", {}, "element 0: NaN and Infinity are no JSON values"),
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
    items = [{"custom_id": "7", "input": [0.5, 1.0]}, [2.0]]
    assert read(path, column="vector", id_column="id") == items
    text = Input(path, column="text")
    assert [json.loads(line) for line in text.lines()] == ["x", "y"]
    assert list(text.lines()) == list(text.lines())  # read anew each time
    more = table(tmp_path / "more.parquet", n=list(range(2500)))  # than are read at once
    assert read(more) == list(range(2500))
    ids = table(tmp_path / "ids.parquet", a=[1.0] * 700 + [math.inf], id=[*range(701)])
    with pytest.raises(InputError, match=r"row 701 \(custom_id '700'\): column 'a': Infinity"):
        read(ids, id_column="id")


def test_a_column_is_taken_from_objects_of_json(tmp_path: Path) -> None:
    rows = [{"q": "x", "id": 7, "note": 1}, {"q": {"input": "y"}}]
    wanted = [{"custom_id": "7", "input": "x"}, {"input": {"input": "y"}}]
    how = {"column": "q", "id_column": "id"}
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    assert items(tmp_path / "a.jsonl", lines, **how) == wanted
    assert items(tmp_path / "a.json", json.dumps(rows).encode(), **how) == wanted
    assert items(tmp_path / "a.jsonl", b'{"q": null}\n', column="q") == [None]
    for inputs in (rows, iter(rows)):
        assert sent(inputs, **how) == [wanted[0], {"input": {"input": "y"}}]
    with pytest.raises(InputError, match="the inputs, input 1: there is no 'note' among"):
        sent(rows, column="note")


def test_without_names_the_one_other_column_is_the_input(tmp_path: Path) -> None:
    content = b'params,custom_id,text\n"{""p"": 5}",a,x\n,,y\n"{""p"": NaN}",b,z\n'
    refused = {"custom_id": "b", "params": '{"p": NaN}', "input": "z"}  # by the api
    wanted = [{"custom_id": "a", "params": {"p": 5}, "input": "x"}, "y", refused]
    assert items(tmp_path / "a.csv", content) == wanted
    path = table(tmp_path / "a.parquet", input=["x", "y"], params=[{"p": 5}, None])
    assert read(path) == [{"params": {"p": 5}, "input": "x"}, "y"]
    assert items(tmp_path / "b.csv", b"id,text\n1,x\n", id_column="id") == [
        {"custom_id": "1", "input": "x"}
    ]


def test_files_of_a_folder_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    (parts / "a=1").mkdir(parents=True)
    (parts / "_temporary").mkdir()
    (parts / "b.csv").write_text('input\n"two\nlines"\nx\n')
    (parts / "a=1" / "part.jsonl").write_text('"first"\n"second"\n\n \n')
    (parts / "c.jsonl").touch()
    for name in ("_SUCCESS", ".part.crc", "_temporary/d.jsonl"):
        (parts / name).write_text("nothing of the job")
    given = Input(str(parts))
    assert [json.loads(line) for line in given] == ["first", "second", "two\nlines", "x"]
    assert [given.place(n) for n in (2, 3, 4)] == [
        {"file": str(parts / "a=1" / "part.jsonl"), "line": 2},
        {"file": str(parts / "b.csv"), "line": 2},
        {"file": str(parts / "b.csv"), "line": 4},
    ]
    assert list(Input([str(parts / "b.csv"), str(parts)])) == [*Input(str(parts / "b.csv")), *given]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty: no file in this folder has items"):
        list(Input(str(tmp_path / "empty")))


def test_faults_that_the_api_finds_are_told_with_their_places_in_the_files(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,text\na,"one\ntwo"\nb,three\nb,four\n')
    faults = [
        {"loc": ["input"], "line": 2, "custom_id": "b", "code": "too_long", "message": "too long"},
        {"loc": ["custom_id"], "line": 3, "code": "duplicate_custom_id", "message": "as line 2",
         "first": {"line": 2}},
    ]  # fmt: skip

    def refuse(request: httpx.Request) -> httpx.Response:
        request.read()
        problem = {"title": "Not valid", "detail": "2 faults", "errors": faults}
        return httpx.Response(422, json=problem)

    with pytest.raises(UnprocessableEntityError) as caught:
        answered_by(refuse).jobs.submit("echo", path, column="text", id_column="id")
    said = str(caught.value).splitlines()
    assert said == [
        "Not valid: 2 faults",
        f"  {path}, line 4 (custom_id 'b'): too long",
        f"  {path}, line 5: custom_id is already that of {path}, line 4",
    ]
    assert caught.value.problem["errors"][0]["line"] == 4


def test_faults_of_parquet_name_the_column_or_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(tmp_path / "a.parquet", a=["x"], b=[math.nan])
    faults: list[tuple[dict[str, str], str]] = [
        ({}, "has several columns; name one with column: a, b"),
        ({"column": "c"}, "has no column 'c'; name one with column: a, b"),
        ({"column": "a", "id_column": "c"}, "name one with id_column: a, b"),
        ({"column": "b"}, "a.parquet, row 1: column 'b': NaN is no JSON value"),
    ]
    for (how, said), case in each(faults):
        with case, pytest.raises(InputError, match=re.escape(said)):
            read(path, **how)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install 'millrace\[parquet\]'"):
        read(path, column="a")


def sent(inputs: Any, **how: str) -> list[Any]:
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
    assert sent(inputs) == found


def test_tables_and_files_give_columns_by_name(tmp_path: Path) -> None:
    table = {"id": np.array([7.0, np.nan]), "text": ["x", "y"], "note": ["", ""]}
    assert sent(table, column="text", id_column="note") == [{"input": "x"}, {"input": "y"}]
    with pytest.raises(InputError, match=r"row 1 of the column of ids: 0\.5 is no id"):
        sent({"id": [1, 0.5], "text": ["x", "y"]}, column="text", id_column="id")
    wanted = [{"custom_id": "7", "input": "x"}, {"input": "y"}]
    assert sent(table, column="text", id_column="id") == wanted
    assert sent(Frame(**table), column="text", id_column="id") == wanted
    (tmp_path / "a.txt").write_text("x\ny\n")
    (tmp_path / "a.csv").write_text("id,text\n1,x\n")
    (tmp_path / "a.jsonl").write_text('"x"\n{"input": 2}\n')
    assert sent(tmp_path / "a.txt") == ["x", "y"]
    assert sent(str(tmp_path / "a.csv"), column="text", id_column="id") == [
        {"custom_id": "1", "input": "x"}
    ]
    assert sent(tmp_path / "a.jsonl") == ["x", {"input": 2}]
    with pytest.raises(InputError, match="texts have no columns"):
        sent(tmp_path / "a.txt", column="a")


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
        (["x", float("nan")], {}, "input 1 can't be sent as JSON: NaN"),
        (["x", object()], {}, "input 1 can't be sent as JSON: a object is no JSON value"),
        (["x"], {"column": "a"}, "the inputs, input 0: no object, which has columns"),
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
        sent(inputs, **how)
