"""Reader of the last lines of workers' logs, which they keep in Redis."""

from dataclasses import dataclass
from typing import Any, get_args

from api.gateway.redis_pipeline import Pipeline
from api.schemas.logs import LogLevel
from jobs.telemetry.log_ring import log_key, parse_lines

LEVELS: tuple[str, ...] = get_args(LogLevel)
MOST_LINES = 1000


@dataclass(frozen=True, slots=True)
class LinesWanted:
    """Filter of lines."""

    level: str = "debug"  #: least severe
    text: str = ""  #: part of the message, logger or traceback, in any case
    limit: int = 200

    def matches(self, line: dict[str, Any]) -> bool:
        """Returns True if the line is wanted."""
        level = line.get("level", "info")
        if level in LEVELS and LEVELS.index(level) < LEVELS.index(self.level):
            return False
        fields = (value for name, value in line.items() if name not in ("id", "timestamp"))
        return self.text.lower() in "\n".join(map(str, fields)).lower()


class WorkerLogs:
    """Reads through `pipe`, which isn't that of calls."""

    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe

    async def read(
        self, worker: int, want: LinesWanted, after: str = ""
    ) -> tuple[list[dict[str, Any]], str]:
        """Returns the newest lines that are wanted, oldest first, and the id of the last line that
        was looked at. after: id of a line; "": from the first that is kept. Raises RedisError."""
        start = f"({after}" if after else "-"
        entries = await self._pipe.ask(
            "XREVRANGE", log_key(worker), "+", start, "COUNT", MOST_LINES
        )
        lines = parse_lines(reversed(entries))
        last = entries[0][0].decode() if entries else after
        return [line for line in lines if want.matches(line)][-want.limit :], last
