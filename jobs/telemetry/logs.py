"""Logging of a process: one line per event on standard error, as JSON or as text for terminals."""

import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import orjson

from jobs.errors import without_surrogates
from jobs.telemetry.tracing.context import CURRENT

FIELDS = (
    "request_id", "call_id", "job_id", "tenant", "model", "worker", "webhook_id",
)  # fmt: skip
"""Fields of a line: from `bound_fields`, `set_process_fields` or a record's `extra`. All others
are dropped, as they may hold payloads."""

_ROWS = re.compile(r"\n(?:DETAIL|CONTEXT):[^\n]*")
"""Lines of PostgreSQL's errors that quote the row, which is a payload."""

_QUIET = (
    "alembic", "boto3", "botocore", "celery", "httpx", "kombu", "s3transfer", "uvicorn",
)  # fmt: skip

_process_fields: dict[str, str] = {}
_bound: ContextVar[dict[str, str] | None] = ContextVar("bound", default=None)


@contextmanager
def bound_fields(**fields: str) -> Iterator[None]:
    """Adds FIELDS to the lines that are written within."""
    token = _bound.set({**(_bound.get() or {}), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


def set_process_fields(**fields: str) -> None:
    """Adds FIELDS to all lines of this process."""
    _process_fields.update(fields)


def configure(process: str, form: str = "auto") -> None:
    """Configures logging. `form` is json, human, or auto: human on a terminal."""
    human = form == "human" or (form == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler()
    handler.setFormatter(_HumanFormatter(process) if human else _JsonFormatter(process))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.captureWarnings(True)
    if not human:
        sys.excepthook = _log_uncaught
    for noisy in _QUIET:
        logging.getLogger(noisy).setLevel(logging.WARNING)


def json_formatter(process: str) -> logging.Formatter:
    """Returns the formatter of lines as JSON objects."""
    return _JsonFormatter(process)


def record_fields(record: logging.LogRecord) -> dict[str, str]:
    """Returns the fields of a line, and the ids of the span that it was written in."""
    fields = {**_process_fields, **(_bound.get() or {})}
    fields |= {name: str(getattr(record, name)) for name in FIELDS if hasattr(record, name)}
    if here := CURRENT.get():
        fields |= {"trace_id": f"{here.trace_id:032x}", "span_id": f"{here.span_id:016x}"}
    return fields


class _HumanFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__(f"%(asctime)s {process} %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Formats a line, without quoted rows."""
        return _ROWS.sub("", super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Formats the message, with its fields."""
        fields = " ".join(f"{name}={value}" for name, value in record_fields(record).items())
        return super().formatMessage(record) + (f" [{fields}]" if fields else "")


class _JsonFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = {"process": process, "pid": os.getpid()}

    def format(self, record: logging.LogRecord) -> str:
        """Formats a line as a JSON object."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _plain(record.getMessage()),
            **self._process,
            "thread": record.threadName,
            **record_fields(record),
        }
        if record.exc_info:
            line["exception"] = _plain(self.formatException(record.exc_info))
        return orjson.dumps(line).decode()


def _plain(text: str) -> str:
    """Returns the text without quoted rows and lone surrogates."""
    return without_surrogates(_ROWS.sub("", text))


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    logging.getLogger(threading.current_thread().name).critical(
        "terminated by %s", kind.__name__, exc_info=(kind, error, trace)
    )
