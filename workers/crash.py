"""Crash hook: ends a process when one of its threads dies."""

import logging
import os
import threading

_log = logging.getLogger(__name__)


def end_process(thread: threading.ExceptHookArgs) -> None:
    """Ends the process with code 70, as `threading.excepthook`. Without one of its threads it would
    look alive and do nothing; its supervisor starts another, and leases expire."""
    _log.critical("%s died", thread.thread and thread.thread.name, exc_info=thread.exc_value)
    os._exit(70)
