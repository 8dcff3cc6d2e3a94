"""Logging of a process: one line an event, on standard error. JSON, or words for who reads them on
a terminal."""

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

from jobs.telemetry.tracing.context import HERE

FIELDS = (
    "request_id", "call_id", "job_id", "tenant", "model", "worker", "webhook_id",
)  # fmt: skip
"""What a line may be about: by `about`, `always`, or a record's `extra`. Others are left out, as
they may hold payloads."""

_ROWS = re.compile(r"\n(?:DETAIL|CONTEXT):[^\n]*")
"""What PostgreSQL adds to an error: it quotes the row, which is a payload."""

_QUIET = (
    "alembic", "boto3", "botocore", "celery", "httpx", "kombu", "s3transfer", "uvicorn",
)  # fmt: skip

_always: dict[str, str] = {}
_about: ContextVar[dict[str, str] | None] = ContextVar("about", default=None)


@contextmanager
def about(**fields: str) -> Iterator[None]:
    """Lines that are written within are about these FIELDS too."""
    token = _about.set({**(_about.get() or {}), **fields})
    try:
        yield
    finally:
        _about.reset(token)


def always(**fields: str) -> None:
    """All lines of this process are about these FIELDS."""
    _always.update(fields)


def configure(process: str, form: str = "auto") -> None:
    """form: json, human, or auto, which is human on a terminal."""
    human = form == "human" or (form == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler()
    handler.setFormatter(_Words(process) if human else _Json(process))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.captureWarnings(True)
    if not human:
        sys.excepthook = _last_words
    for noisy in _QUIET:
        logging.getLogger(noisy).setLevel(logging.WARNING)


def fields_of(record: logging.LogRecord) -> dict[str, str]:
    """What a line is about, and in which span it was written."""
    found = {**_always, **(_about.get() or {})}
    found |= {name: str(getattr(record, name)) for name in FIELDS if hasattr(record, name)}
    if here := HERE.get():
        found |= {"trace_id": f"{here.trace_id:032x}", "span_id": f"{here.span_id:016x}"}
    return found


class _Words(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__(f"%(asctime)s {process} %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return _ROWS.sub("", super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        said = " ".join(f"{name}={value}" for name, value in fields_of(record).items())
        return super().formatMessage(record) + (f" [{said}]" if said else "")


class _Json(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = {"process": process, "pid": os.getpid()}

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _plain(record.getMessage()),
            **self._process,
            "thread": record.threadName,
            **fields_of(record),
        }
        if record.exc_info:
            line["exception"] = _plain(self.formatException(record.exc_info))
        return orjson.dumps(line).decode()


def _plain(text: str) -> str:
    """Without rows, and as JSON can have it."""
    return _ROWS.sub("", text).encode("utf-8", "replace").decode()


def _last_words(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Of a process that an exception ends: one line, as all others."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    logging.getLogger(threading.current_thread().name).critical(
        "ended by %s", kind.__name__, exc_info=(kind, error, trace)
    )
