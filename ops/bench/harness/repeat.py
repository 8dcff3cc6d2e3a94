"""Function that runs again and again beside a measurement."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeat(period_s: float, act: Callable[[], object]) -> Iterator[None]:
    """Calls a function every period, on a thread of its own, until it is left."""
    left = threading.Event()

    def run() -> None:
        """Calls it until the end."""
        while not left.wait(period_s):
            act()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()
