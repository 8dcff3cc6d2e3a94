"""A file of results is read as it was written."""

import json
from pathlib import Path
from typing import Any

import pytest

from ops.cli.results.files import ResultsError, result_lines
from ops.cli.results.writers import Target
from tests.support.command_line import run_millrace


def line(seq: int, output: Any, error: dict[str, Any] | None = None) -> bytes:
    result = {
        "seq": seq, "custom_id": f"c-{seq}" if seq else None,
        "outcome": "failed" if error else "succeeded", "output": output, "error": error,
        "usage": {"characters": 1}, "attempts": 1,
    }  # fmt: skip
    return json.dumps(result).encode()


LINES = [line(0, 'text, "quoted"\nand more'), line(1, "é"), line(2, None, {"code": "x"})]
VECTORS = [line(0, [0.5, 1.0]), line(1, [2.0])]


@pytest.mark.parametrize("lines", [LINES, VECTORS])
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
