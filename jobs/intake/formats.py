"""Formats of items that a person pastes or uploads: JSON lines, a JSON document, plain texts."""

import json
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Literal, get_args

import orjson

Format = Literal["jsonl", "json", "text"]
FORMATS: tuple[Format, ...] = get_args(Format)

TABLES = ("csv", "parquet")
"""Formats with rows, whose columns a file names."""

HEAD_LINES, HEAD_BYTES = 20, 65_536
"""Most of an input that a guess goes by."""


def stored_format(name: str) -> tuple[str, str]:
    """Returns format and compression of a stored file or object by its name; others are JSON lines,
    as batches are, whatever their name."""
    stem = name.lower().removesuffix(".gz")
    compression = "none" if stem == name.lower() else "gzip"
    return next((table for table in TABLES if stem.endswith(f".{table}")), "jsonl"), compression


def read_head(file: IO[bytes], most_bytes: int = -1) -> list[bytes]:
    """Reads the first lines of a file, without a byte order mark. most_bytes: of one of them; -1:
    any number."""
    lines: list[bytes] = []
    size = 0
    while len(lines) < HEAD_LINES and size < HEAD_BYTES and (line := file.readline(most_bytes)):
        lines.append(line if lines else line.removeprefix(BOM_UTF8))
        size += len(line)
    return lines


def guess(head: Sequence[bytes]) -> Format:
    """Guesses the format of what begins with these lines: JSON lines where the first one is a JSON
    text, list or object, or all are JSON; a JSON document over several lines; or else texts."""
    lines = [line for line in head if line.strip()]
    if not lines or all(map(_is_json, lines)):
        return "jsonl"
    first = lines[0].lstrip()[:1]
    if first in (b'"', b"[", b"{") and _is_json(lines[0]):
        return "jsonl"  # with a fault in a later line, which the api names
    if first in (b"[", b"{") and _begins_a_document(b"".join(lines)):
        return "json"
    return "jsonl" if first == b"{" else "text"


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _begins_a_document(head: bytes) -> bool:
    """Returns True for a JSON document, or the beginning of one."""
    text = head.decode(errors="replace").rstrip()
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos >= len(text) or error.msg.startswith("Unterminated string")
    except RecursionError:
        return False
    return True


def text_lines(lines: Iterable[bytes | None]) -> Iterator[bytes | None]:
    """Yields each line as an item, its text in JSON; None stays None.

    A line that is not UTF-8 stays as it is: the intake says so, with its number.
    """
    for line in lines:
        yield None if line is None else _in_json(line.rstrip(b"\r\n"))


def _in_json(line: bytes) -> bytes:
    try:
        return orjson.dumps(line.decode())
    except UnicodeDecodeError:
        return line
