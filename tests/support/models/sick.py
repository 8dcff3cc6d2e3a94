"""Models whose device fails in the workers that files name, by the port of their metrics."""

import os
import time
from pathlib import Path

ECC = "CUDA error: uncorrectable ECC error encountered"
ILLEGAL = "CUDA error: an illegal memory access was encountered"


def shout(batch: list[str]) -> list[str]:
    """Upper-cases texts; fails while the file "sick-PORT" or "sick-all" is in the home, and by the
    text "poison" everywhere."""
    home = Path(os.environ["MILLRACE_HOME"])
    if any((home / f"sick-{who}").exists() for who in (_port(), "all")):
        raise RuntimeError(ECC)
    if "poison" in batch:
        raise RuntimeError(ILLEGAL)
    time.sleep(0.02)
    return [text.upper() for text in batch]


def _port() -> str:
    return os.environ["MILLRACE_METRICS_PORT"]
