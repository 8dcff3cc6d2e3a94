"""Progress of downloads and conversions: limits count the time since the latest of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_told: ContextVar[Callable[[], None]] = ContextVar("progress", default=lambda: None)


def report() -> None:
    """Tells whoever limits the time of this thread's work that it progresses."""
    _told.get()()


@contextmanager
def reported_to(tell: Callable[[], None]) -> Iterator[None]:
    """Has `tell` called for all progress inside."""
    token = _told.set(tell)
    try:
        yield
    finally:
        _told.reset(token)
