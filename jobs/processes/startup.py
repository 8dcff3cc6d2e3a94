"""Start of a process: imports without garbage collections, and without libraries nobody uses."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def begin() -> None:
    """Call it before anything else is imported.

    Pauses the garbage collector until `collect_and_freeze`: what is imported stays, and to walk all
    of it again and again is a tenth of the start.
    """
    gc.disable()
    with _not_installed("opentelemetry"):
        # Where it finds OpenTelemetry, redis-py loads its SDK, for metrics of its own that are off:
        # 70 modules, 0.1 s and 8 MB of each process.
        import redis  # noqa: F401


@contextmanager
def _not_installed(package: str) -> Iterator[None]:
    """Lets optional imports of a package fail, unless it is loaded."""
    hides = package not in sys.modules
    if hides:
        sys.modules[package] = None  # type: ignore[assignment]  # imports of it raise ImportError
    try:
        yield
    finally:
        if hides:
            del sys.modules[package]
