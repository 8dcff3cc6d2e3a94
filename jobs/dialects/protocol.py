"""The protocol of a dialect: reads the lines of an input, writes the lines of results."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol

from jobs.intake.spool import Intake

Part = Literal["results", "errors"]
"""Which file a line goes into, where a dialect has two."""


class Dialect(Protocol):
    """asked: what the job's door was asked, from its row; {} where there was nothing."""

    def read_items(
        self,
        open_intake: Callable[[str], Intake],
        lines: Iterable[bytes | None],
        asked: Mapping[str, Any],
    ) -> Intake:
        """The items of an input, all checked: an intake that is finished. open_intake: for the
        model of that name, or "" for the one that the job named; once. lines: None for one that
        is too long for any item. Raises UnknownModel, or Invalid with everything that is wrong."""
        ...

    def result_line(
        self, row: Mapping[str, Any], unit: str, asked: Mapping[str, Any]
    ) -> tuple[Part, bytes]:
        """The line of one result, without its end, and which file it goes into. row: seq,
        custom_id, outcome, attempts, units and the JSON texts output, error and reply (what the
        dialect gave to `Intake.add`), with payloads in place of references. unit: what units
        count. asked: with the job's model beside."""
        ...
