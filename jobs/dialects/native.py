"""Native format: a line is an item; result lines are those of `GET /jobs/{id}/results`."""

from typing import Any

import orjson

from jobs.dialects.protocol import BatchRequest, Lines, OpenIntake, Part, Row
from jobs.intake.feeding import add_lines
from jobs.intake.spool import Intake
from jobs.models.engines.engine_spec import Task


class Native:
    """Native dialect, described in api.md."""

    def read_items(self, open_intake: OpenIntake, lines: Lines, batch: BatchRequest) -> Intake:
        """Reads the lines of an input."""
        taken = open_intake("")
        add_lines(taken, lines)
        return taken

    def result_line(self, row: Row, unit: str, batch: BatchRequest) -> tuple[Part, bytes]:
        """Returns a result line."""
        truncated = {"truncated": row["truncated"]} if row["truncated"] else {}
        line = {
            "seq": row["seq"],
            "custom_id": row["custom_id"],
            "outcome": row["outcome"],
            "output": orjson.Fragment(row["output"] or "null"),
            "error": orjson.Fragment(row["error"] or "null"),
            "usage": {unit: row["units"], **truncated},
            "attempts": row["attempts"],
        }
        if row["version"]:
            line["version"] = row["version"]
        return "results", orjson.dumps(line)

    def output_problem(self, output: Any, task: Task) -> None:
        """Returns None: any output is a result."""
