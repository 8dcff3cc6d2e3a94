"""Results in a file: whole or not at all, in every format the same, read as they were written."""

import csv
import gzip
import json
import os
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from ops.cli.results.files import ResultsError, result_lines
from ops.cli.results.writers import OutputError, Target
from tests.support.cases import each
from tests.support.command_line import run_millrace


def line(seq: int, output: Any = None, code: str = "", id: str | None = None) -> bytes:
    error = {"code": code, "message": f"it is {code}"} if code else None
    result = {
        "seq": seq, "custom_id": id, "outcome": "failed" if code else "succeeded",
        "output": output, "error": error, "usage": {"tokens": 2}, "attempts": 1,
    }  # fmt: skip
    return json.dumps(result).encode()


LINES = [line(0, 'a,\n"b"', id="x"), line(1, code="invalid_output"), line(2, "é\u2028")]


def rows(path: Path) -> list[dict[str, Any]]:
    return pyarrow.parquet.read_table(path).to_pylist()


def write(path: Path, lines: list[bytes]) -> Path:
    assert Target.of(path).write(lines) == len(lines)
    return path


def test_json_lines_are_as_they_came_and_csv_holds_the_same(tmp_path: Path) -> None:
    for name in ("out", "out.jsonl", "out.ndjson.gz"):
        raw = write(tmp_path / name, LINES).read_bytes()
        raw = gzip.decompress(raw) if name.endswith(".gz") else raw
        assert raw == b"".join(found + b"\n" for found in LINES)
    with write(tmp_path / "out.csv", LINES).open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["output"] for row in found] == ['a,\n"b"', "", "é\u2028"]
    errors = [row["error"] and json.loads(row["error"])["code"] for row in found]
    assert errors == ["", "invalid_output", ""]
    assert (found[0]["custom_id"], found[1]["outcome"], found[2]["units"]) == ("x", "failed", "2")


def test_a_result_that_was_cut_has_its_units(tmp_path: Path) -> None:
    cut = line(0, "a").replace(b'{"tokens": 2}', b'{"tokens": 2, "truncated": 7}')
    assert rows(write(tmp_path / "out.parquet", [cut, LINES[0]]))[0]["units"] == 2


def test_results_of_a_routed_job_have_their_version(tmp_path: Path) -> None:
    routed = [line[:-1] + b', "version": "%d"}' % n for n, line in enumerate(LINES)]
    with write(tmp_path / "out.csv", routed).open(newline="") as file:
        assert [row["version"] for row in csv.DictReader(file)] == ["0", "1", "2"]
    found = rows(write(tmp_path / "out.parquet", routed))
    assert [row["version"] for row in found] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("outputs", "kind"),
    [
        (["a", "b"], "string"),
        ([1, 2.5], "double"),
        ([[0.5, 1], [2, 3]], "list<element: double>"),
        ([[[0.5]], [[2], [3]]], "list<element: list<element: double>>"),
    ],
)
def test_parquet_has_outputs_as_they_are(tmp_path: Path, outputs: list[Any], kind: str) -> None:
    lines = [line(seq, output) for seq, output in enumerate(outputs)]
    path = write(tmp_path / "out.parquet", [*lines, line(9, code="engine_error")])
    assert str(pyarrow.parquet.read_schema(path).field("output").type) == kind
    assert [row["output"] for row in rows(path)] == [*outputs, None]
    assert json.loads(rows(path)[-1]["error"])["message"] == "it is engine_error"


def test_parquet_has_outputs_of_other_kinds_as_json(tmp_path: Path) -> None:
    kinds = [[{"label": "a"}], ["a", 1], [[1], "a"], [True], [[], [1]], [["a"]], [[1], [[1]]], []]
    for outputs, case in each(kinds):
        with case:
            lines = [line(n, output) for n, output in enumerate(outputs)]
            texts = [row["output"] for row in rows(write(tmp_path / "out.parquet", lines))]
            assert texts == [o if isinstance(o, str) else json.dumps(o) for o in outputs]


def test_an_output_that_does_not_fit_the_first_ones_is_named(tmp_path: Path) -> None:
    lines = [*(line(seq, [0.5]) for seq in range(1000)), line(1000, "text")]
    with pytest.raises(OutputError, match=r"between seq 1000 and 1000 .*write .jsonl or .csv"):
        Target.of(tmp_path / "out.parquet").write(lines)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv.gz", "out.parquet"])
def test_a_file_is_there_when_it_is_whole(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("before")

    def breaking() -> Iterator[bytes]:
        for seq in range(5000):
            yield line(seq, [0.5])
        assert path.read_text() == "before"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Target.of(path).write(breaking())
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one_and_a_pipe_is_written_into(tmp_path: Path) -> None:
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "real.jsonl")
    write(tmp_path / "link.jsonl", LINES)
    assert (tmp_path / "link.jsonl").is_symlink()
    assert (tmp_path / "real.jsonl").read_bytes().count(b"\n") == 3
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write(tmp_path / "pipe", LINES)
    assert os.read(reader, 65_536).count(b"\n") == 3
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


def test_what_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, why in (
        ("out.xlsx", ".xlsx is none of .jsonl, .ndjson, .csv, .parquet"),
        ("nowhere/out.csv", "there is no folder"),
        ("out.parquet.gz", "Parquet is compressed inside"),
    ):
        with pytest.raises(OutputError, match=why):
            Target.of(tmp_path / name)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(OutputError, match=r"pip install 'millrace\[parquet\]'"):
        Target.of(tmp_path / "out.parquet")


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["out.jsonl.gz", "out.csv", "out.parquet"])
def test_memory_does_not_grow_with_the_results(tmp_path: Path, name: str) -> None:
    raw = line(0, [0.5] * 20)

    def peak_mib(count: int) -> float:
        tracemalloc.start()
        Target.of(tmp_path / name).write(raw + b" " for _ in range(count))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most / 2**20

    peak_mib(1)  # with what is loaded at the first time
    assert peak_mib(6000) < peak_mib(2000) + 0.5


RESULTS = [line(0, 'text, "quoted"\nand more'), line(1, "é", id="c-1"), line(2, code="x")]
VECTORS = [line(0, [0.5, 1.0]), line(1, [2.0], id="c-1")]


@pytest.mark.parametrize("lines", [RESULTS, VECTORS])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.csv.gz", "a.parquet"])
def test_what_was_written_is_read(tmp_path: Path, name: str, lines: list[bytes]) -> None:
    path = tmp_path / name
    Target.of(path).write(lines)
    read = [json.loads(one) for one in result_lines(path)]
    for found, written in zip(read, map(json.loads, lines), strict=True):
        assert found == {key: written[key] for key in found}
        assert found.keys() == {"seq", "custom_id", "outcome", "output", "error"}


def test_a_file_without_results_is_named(tmp_path: Path) -> None:
    for name, content in (
        ("a.jsonl", b'"hello"\n'),
        ("b.jsonl", b'{"seq": 1}\n'),
        ("a.jsonl.gz", b"no gzip"),
        ("a.csv", b"a,b\n1,2\n"),
        ("a.parquet", b"no Parquet"),
        ("a.xlsx", b""),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ResultsError, match=name):
            list(result_lines(tmp_path / name))


def test_files_are_compared_without_a_platform(tmp_path: Path) -> None:
    one, other = tmp_path / "a.parquet", tmp_path / "b.csv"
    Target.of(one).write(VECTORS)
    Target.of(other).write(VECTORS)
    nobody = ("--url", "http://127.0.0.1:1")
    same = run_millrace("diff", str(one), str(other), *nobody)
    assert "2 same, 0 changed" in same.output
    missing = run_millrace("diff", str(one), "missing.csv", *nobody, status=2)
    assert "there is no file missing.csv" in missing.output
