"""One made-up table in several formats, read at each door: what each stores of it.

Doors: the client (of a file, and of lists), the command line, the body of `POST /jobs`, and a job
whose file the platform reads. Each ends in an intake, whose rows are what would be stored.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import IO, Any

from jobs import ids
from jobs.errors import MillraceError
from jobs.intake.feeding import add_lines
from jobs.intake.free_space import DiskFloor
from jobs.intake.lines import Line, bounded_lines
from jobs.intake.spool import Intake
from jobs.models.builtin_models import SAMPLES
from millrace import InputError
from millrace.inputs.files import Input
from millrace.inputs.lines import lines_of
from millrace.inputs.readers import Part, Table
from workers.transfers.readers import Bounds, SourceFile, SourceLines

REFUSED = "refused"

Row = dict[str, Any]
"""Values by column: texts, but for whole numbers in a column of ids."""

_MODEL = SAMPLES.resolve("echo")
_LINE_BYTES, _FILE_BYTES = 10_000, 1 << 20
_TEXTS = [
    "plain", "", " ", "a,b", 'q"q', '""', "line\nend", "cr\r\nlf", "\ufeffmark", "NaN", "null",
    "NA", "1.0", "007", "-0", "é", "😀", "\u2028", "\x85", "\t", "\\", "\\n", "{}", "[1]", '"x"',
    '{"input": "y"}', "#", "'", ";", "18446744073709551616", "a" * 600, "x" * 9_000, "\x01",
]  # fmt: skip
_IDS = [
    "a", "b", "7", "é", "", "a b", "NA", "NaN", '"', "x,y", "0", "-1", "1e3", "\ufeff", "a" * 512,
    "a" * 513, "\x07",
]  # fmt: skip
_PARAMS = ['{"p": 1}', "{}", '{"a": [1, null, "é"]}', "no JSON", "[]", '{"p": NaN}', '"x"', "5"]


def differences(seed: int, tables: int) -> Iterator[str]:
    """Yields what differs between the doors and formats, for so many tables."""
    with TemporaryDirectory() as folder:
        for n in range(tables):
            rows, how = made(Random(f"table/{seed}/{n}"))
            found = dict(stored(rows, how, Path(folder)))
            if len(set(map(str, found.values()))) > 1:
                yield f"table {seed}/{n}, {how}: " + "; ".join(
                    f"{door}: {str(rows)[:300]}" for door, rows in found.items()
                )


def made(random: Random) -> tuple[list[Row], dict[str, str]]:
    """Returns the rows of a table, and how its columns are named to the readers."""
    named = random.random() < 0.5
    names = ["text", "id", "note"] if named else ["input", "custom_id", "params"]
    columns = [names[0], *(name for name in names[1:] if random.random() < 0.6)]
    random.shuffle(columns)
    values: dict[str, list[Any]] = {
        names[0]: _TEXTS,
        names[1]: _IDS,
        names[2]: _TEXTS if named else ["", "", *_PARAMS],
    }
    if named and random.random() < 0.2:
        values[names[0]] = [*_TEXTS, None, None]
    if named and random.random() < 0.3:
        values[names[1]] = [0, 7, -1, 2**53, 2**63 - 1]
    odd = random.random()  # share of values that are no plain ones
    rows: list[Row] = [
        {
            name: random.choice(values[name])
            if random.random() < odd or values[name][0] == 0
            else _plain(name, n)
            for name in columns
        }
        for n in range(random.choice((1, 2, 5, 20)))
    ]
    if not named:
        return rows, {}
    return rows, {"column": "text"} | ({"id_column": "id"} if "id" in columns else {})


def stored(rows: list[Row], how: dict[str, str], folder: Path) -> Iterator[tuple[str, object]]:
    """Yields each door and format with what is stored of the table there, or REFUSED."""
    has_null = any(value is None for row in rows for value in row.values())
    for format, write in _WRITERS.items():
        if format == "csv" and has_null:
            continue  # which is an empty text there
        path = folder / f"t.{format}"
        path.write_bytes(write(rows, how))
        command = partial(
            Input, (str(path),), None, how.get("column", ""), how.get("id_column", "")
        )
        yield f"client {format}", _taken(partial(lines_of, path, **how))
        yield f"command {format}", _taken(command)
        yield f"platform {format}", _taken(partial(_source, path, format, how))
    items = rows if how else [_item(row) for row in rows]
    yield "client list", _taken(partial(lines_of, items, **how))
    body = b"".join(json.dumps(_picked(row, how)).encode() + b"\n" for row in rows)
    yield "api", _taken(partial(bounded_lines, io.BytesIO(body), _LINE_BYTES))


def _plain(name: str, n: int) -> str:
    return {"custom_id": f"id-{n}", "id": f"id-{n}", "params": ""}.get(name, f"text {n}")


def _item(row: Row) -> dict[str, Any]:
    """Returns a row without names as an item of JSON."""
    item: dict[str, Any] = {name: value for name, value in row.items() if value or name == "input"}
    if "params" in item:
        item["params"] = _object(item["params"])
    return item


def _object(text: str) -> Any:
    """Returns what a text of JSON means, without a value that JSON doesn't have."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except ValueError:
        return text
    return value


def _picked(row: Row, how: dict[str, str]) -> dict[str, Any]:
    if not how:
        return _item(row)
    custom_id = row.get(how.get("id_column", ""), "")
    return {"input": row["text"]} | ({"custom_id": str(custom_id)} if custom_id != "" else {})


def _jsonl(rows: list[Row], how: dict[str, str]) -> bytes:
    lines = [json.dumps(row if how else _item(row), ensure_ascii=False) for row in rows]
    return "".join(f"{line}\n" for line in lines).encode()


def _csv(rows: list[Row], how: dict[str, str]) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(rows[0]), quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def _parquet(rows: list[Row], how: dict[str, str]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    out = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), out)
    return out.getvalue()


_WRITERS: dict[str, Callable[[list[Row], dict[str, str]], bytes]] = {
    "jsonl": _jsonl, "csv": _csv, "parquet": _parquet,
}  # fmt: skip


def _source(path: Path, format: Any, how: dict[str, str]) -> Iterable[Line]:
    bounds = Bounds(_LINE_BYTES, _FILE_BYTES, _FILE_BYTES, DiskFloor((), 0))
    table = Table("the input", how.get("column", ""), how.get("id_column", ""))

    @contextmanager
    def opened() -> Iterator[IO[bytes]]:
        """Opens the file."""
        with path.open("rb") as raw:
            yield raw

    return SourceLines([SourceFile(Part(str(path), format), table, False, opened)], bounds)


def _taken(lines: Callable[[], Iterable[Line]]) -> object:
    """Returns custom_id, params and input of each item that an intake takes, or REFUSED."""
    taken = Intake(ids.new(), "t", _MODEL, strict=True, max_items=1000)
    with closing(taken):
        try:
            add_lines(taken, lines())
        except (MillraceError, InputError):
            return REFUSED
        return [tuple(row.rstrip(b"\n").split(b"\t")[3:]) for row in taken.rows]
