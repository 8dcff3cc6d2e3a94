"""Processes of the engine `transformers`, which a fork server may have started for a worker."""

from contextlib import suppress

import psutil

from workers.engines.transformers.process import MODEL


def engine_pids(worker: int) -> list[int]:
    """Returns the pids of the processes that hold models of a worker: they name it themselves."""
    return [one.pid for one in psutil.process_iter() if _holds_a_model_of(worker, one)]


def _holds_a_model_of(worker: int, process: psutil.Process) -> bool:
    with suppress(psutil.Error):  # it has ended
        words = " ".join(process.cmdline()).split()  # a title is one word, and padded
        return MODEL in words and words[-1] == str(worker)
    return False
