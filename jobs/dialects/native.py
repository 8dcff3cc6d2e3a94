"""Native format: a line is an item; result lines are those of `GET /jobs/{id}/results`."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from jobs.dialects.protocol import Part
from jobs.intake.spool import Intake, add_lines


class Native:
    """Native dialect, described in api.md."""

    def read_items(
        self,
        open_intake: Callable[[str], Intake],
        lines: Iterable[bytes | None],
        batch: Mapping[str, Any],
    ) -> Intake:
        """Reads the lines of an input."""
        taken = open_intake("")
        add_lines(taken, lines)
        return taken

    def result_line(
        self, row: Mapping[str, Any], unit: str, batch: Mapping[str, Any]
    ) -> tuple[Part, bytes]:
        """Returns a result line."""
        line = {
            "seq": row["seq"],
            "custom_id": row["custom_id"],
            "outcome": row["outcome"],
            "output": orjson.Fragment(row["output"] or "null"),
            "error": orjson.Fragment(row["error"] or "null"),
            "usage": {unit: row["units"]},
            "attempts": row["attempts"],
        }
        return "results", orjson.dumps(line)
