"""The protocol of a dialect: reads the lines of an input, writes the lines of results."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol

from jobs.intake.lines import Line
from jobs.intake.spool import Intake
from jobs.models.engines.engine_spec import Task

OpenIntake = Callable[[str], Intake]
Lines = Iterable[Line]
Row = Mapping[str, Any]
BatchRequest = Mapping[str, Any]
Part = Literal["results", "errors"]
"""File that a result line goes into, where a dialect has two."""


class Dialect(Protocol):
    """Format of items and results. batch: request of the compatible API, from the job's row."""

    def read_items(self, open_intake: OpenIntake, lines: Lines, batch: BatchRequest) -> Intake:
        """Reads the items of an input into a finished intake.

        open_intake: opens it for the model of that name ("": the job's); the last one counts.
        Raises UnknownModel, or Invalid with everything that is wrong.
        """
        ...

    def result_line(self, row: Row, unit: str, batch: BatchRequest) -> tuple[Part, bytes]:
        """Returns the line of one result, without its end, and the file that it goes into.

        row: seq, custom_id, outcome, attempts, units and the JSON texts output, error and reply
        (as given to `Intake.add`), with payloads in place of references; version, None where it is
        the job's. unit: unit of sizes.
        batch: also has the job's model.
        """
        ...

    def output_problem(self, output: Any, task: Task) -> str | None:
        """Returns why no answer can be made of a model's output, or None. The worker asks before it
        settles the item: what `result_line` writes as an error is counted as failed."""
        ...
