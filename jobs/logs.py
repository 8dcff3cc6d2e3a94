"""Logging of a process: one line an event, on standard error."""

import logging
import re

_ROWS = re.compile(r"\n(?:DETAIL|CONTEXT):[^\n]*")
"""What PostgreSQL adds to an error: it quotes the row, which is a payload."""


class _WithoutPayloads(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return _ROWS.sub("", super().format(record))


def configure(process: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(
        _WithoutPayloads(f"%(asctime)s {process} %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for noisy in ("alembic", "httpx", "kombu", "celery", "boto3", "botocore", "s3transfer"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
