"""Logging of a process: one line an event, on standard error."""

import logging


def configure(process: str) -> None:
    logging.basicConfig(
        level=logging.INFO,
        format=f"%(asctime)s {process} %(levelname)s %(name)s: %(message)s",
    )
    for noisy in ("alembic", "httpx", "kombu", "celery"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
