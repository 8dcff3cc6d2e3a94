"""Ending a process whose threads can't go on."""

import logging
import os
import threading

_log = logging.getLogger(__name__)


def end_process(thread: threading.ExceptHookArgs) -> None:
    """For `threading.excepthook`. A process without one of its threads would look alive and do
    nothing: better to start anew, and let the lease do the rest."""
    _log.critical("%s died", thread.thread and thread.thread.name, exc_info=thread.exc_value)
    os._exit(70)
