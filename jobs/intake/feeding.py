"""Items of a JSON body, and of lines, into an intake."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, cast

import orjson

from jobs.errors import Fault, Invalid, Malformed
from jobs.intake import validation
from jobs.intake.lines import Line, without_last_blanks
from jobs.intake.spool import Intake

Place = Callable[[int], tuple[str | int, ...]]


def add_array(
    intake: Intake, values: Iterable[Any], place: Place = lambda index: ("items", index)
) -> None:
    """Adds the items of a JSON body. place: of each in the body."""
    left, start = iter(values), 0
    while some := list(islice(left, intake.texts_at_once()[0])):
        if not intake.add_texts(some):
            for index, value in enumerate(some, start):
                intake.add(value, place(index))
        start += len(some)
    intake.finish(lambda seq: (place(seq), None))


def add_lines(intake: Intake, lines: Iterable[Line]) -> None:
    """Adds the items of an NDJSON body, one a line."""
    start = 1
    for some in _together(intake, without_last_blanks(lines)):
        if len(some) == 1 or not _add_texts(intake, some):
            for number, line in enumerate(some, start):
                _add_line(intake, line, number)
        start += len(some)
    intake.finish(lambda seq: ((), seq + 1))


def _together(intake: Intake, lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Yields lines in lists, those that look like plain texts together."""
    some: list[Line] = []
    size = 0
    most, most_bytes = intake.texts_at_once()
    for line in lines:
        text = line if isinstance(line, bytes) and line[:1] == b'"' else b""
        if some and not text:
            yield some
            some, size = [], 0
        some.append(line)
        size += len(text)
        if len(some) >= most or size >= most_bytes or not text:
            yield some
            some, size = [], 0
            most, most_bytes = intake.texts_at_once()
    if some:
        yield some


def _add_texts(intake: Intake, lines: Sequence[Line]) -> bool:
    """Adds lines that are plain texts; returns False where any is something else."""
    try:
        return intake.add_texts([orjson.loads(cast(bytes, line)) for line in lines])
    except orjson.JSONDecodeError:
        return False


def _add_line(intake: Intake, line: Line, number: int) -> None:
    if isinstance(line, Fault):
        its = line.custom_id if validation.is_custom_id(line.custom_id) else None
        intake.refuse(replace(line, line=number), custom_id=its)
        return
    if line is None:
        message = "the line is longer than any item may be"
        intake.refuse(Fault((), "too_long", message, number))
        return
    text = line.strip()
    try:
        value = validation.parse_json(text)
    except Malformed as error:
        message = error.detail if text else "an empty line; each line is one JSON value"
        intake.refuse(Fault((), "malformed", message, number))
    except Invalid as error:
        intake.refuse(*(replace(fault, line=number) for fault in error.faults))
    else:
        intake.add(value, (), number)
