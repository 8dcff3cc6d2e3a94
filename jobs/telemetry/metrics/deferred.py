"""What happened is noted where it happens, and counted a moment later, many at a time: that is done
in half the time, and no call or launch waits for it."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Metric

_log = logging.getLogger(__name__)
_EVERY_S = 0.25
_MOST = 5000
"""Noted and not counted: then it is counted at once."""

_noted: "deque[tuple[Callable[..., None], tuple[Any, ...], dict[str, Any]]]" = deque()
_counting = threading.RLock()


def note(act: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """act will be called with these; they must not change any more."""
    _noted.append((act, args, kwargs))
    if len(_noted) > _MOST:
        count()


def count() -> None:
    """All that was noted before."""
    with _counting:
        while _noted:
            act, args, kwargs = _noted.popleft()
            try:
                act(*args, **kwargs)
            except Exception:  # nobody else would hear of it, and others are to be counted
                _log.exception("something that happened wasn't counted")


def start() -> None:
    """From now on it is done again and again."""
    threading.Thread(target=_go_on, name="metrics", daemon=True).start()


def _go_on() -> None:
    never = threading.Event()
    while not never.wait(_EVERY_S):
        count()


class Registry(CollectorRegistry):
    """Whoever reads it reads all that happened."""

    def collect(self) -> Iterator[Metric]:
        count()
        yield from super().collect()
