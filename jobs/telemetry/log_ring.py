"""Last lines of a worker's log, in a capped stream in Redis, for the dashboard.

Lines are formatted as on standard error, as JSON, and so without payloads. They are written by a
thread of their own; whatever Redis does not take is dropped, and nothing waits for it.
"""

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import orjson
from redis import RedisError

from jobs.telemetry.logs import json_formatter

if TYPE_CHECKING:
    from redis import Redis

EVERY_S = 1.0
BUFFERED = 500
"""Lines between two writes; of more the oldest are dropped."""
_TTL_S = 86_400  # after the last line
_MOST_CHARS = 4000  # of a line
_JOIN_S = 2.0


def log_key(worker: int | str) -> str:
    """Returns the key of the stream of a worker's lines."""
    return f"millrace:logs:{worker}"


class LogRing(logging.Handler):
    """Handler that keeps the last `most` lines in Redis.

    What was already logged by this process isn't in it.
    """

    def __init__(self, redis: "Redis", worker: int | str, most: int) -> None:
        super().__init__()
        self.setFormatter(json_formatter("worker"))
        self._redis, self._key, self._most = redis, log_key(worker), most
        self._lines: deque[str] = deque(maxlen=BUFFERED)
        self._dropped = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log ring", daemon=True)

    def start(self) -> None:
        """Adds it to the loggers of the process, and starts its thread."""
        logging.getLogger().addHandler(self)
        self._thread.start()

    def stop(self) -> None:
        """Removes it, and writes what is left."""
        logging.getLogger().removeHandler(self)
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a line for the next write."""
        try:
            line = self.format(record)
        except Exception:  # as logging does: it must not break what logs
            self.handleError(record)
            return
        self._dropped += len(self._lines) == BUFFERED
        self._lines.append(line)

    def write(self) -> None:
        """Writes the lines so far; they are dropped if Redis doesn't take them."""
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        dropped, self._dropped = self._dropped, 0
        if not lines:
            return
        try:
            with self._redis.pipeline(transaction=False) as steps:
                for line in lines:
                    fields: Any = {"line": _shortened(line)}
                    steps.xadd(self._key, fields, maxlen=self._most, approximate=True)
                if dropped:
                    steps.xadd(self._key, {"dropped": dropped}, maxlen=self._most)
                steps.expire(self._key, _TTL_S)
                steps.execute()
        except RedisError:
            self._dropped += len(lines) + dropped

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_S):
            self.write()
        self.write()


def _shortened(line: str) -> bytes:
    """Returns the line as JSON, with texts that are too long cut."""
    if len(line) <= _MOST_CHARS:
        return line.encode()
    fields: dict[str, Any] = orjson.loads(line)
    for name in ("message", "exception"):
        if len(text := fields.get(name, "")) > _MOST_CHARS // 2:
            fields[name] = text[: _MOST_CHARS // 2] + " …"
    return orjson.dumps(fields)


def parse_lines(entries: Iterable[tuple[bytes, Sequence[bytes]]]) -> list[dict[str, Any]]:
    """Returns the lines of entries of the stream, each with its `id`; others are left out."""
    lines: list[dict[str, Any]] = []
    for id, fields in entries:
        name, value = (*fields, b"", b"")[:2]
        try:
            if name == b"dropped":
                message = f"{int(value)} lines were dropped: Redis was away, or they were too many"
                line: dict[str, Any] = {"level": "warning", "logger": "log", "message": message}
            else:
                line = dict(orjson.loads(value))
        except (ValueError, TypeError):
            continue
        lines.append({**line, "id": id.decode()})
    return lines
