"""Time and randomness, in one module so that tests can control them."""

import random
import time


def monotonic() -> float:
    """Returns seconds on a clock that never goes back."""
    return time.monotonic()


def now() -> float:
    """Returns seconds since 1970."""
    return time.time()


def sleep(seconds: float) -> None:
    """Blocks for so many seconds."""
    time.sleep(seconds)


async def async_sleep(seconds: float) -> None:
    """Waits for so many seconds."""
    import asyncio  # not for those who don't wait so

    await asyncio.sleep(seconds)


def jitter(most: float) -> float:
    """Returns a random number from 0 to `most`."""
    return random.uniform(0.0, most)


class Deadline:
    """Time by which something must have ended. seconds: from now; None: never."""

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds
        self._at_s = None if seconds is None else monotonic() + seconds

    def at_least(self, seconds: float) -> "Deadline":
        """Returns this deadline, or a later one where fewer seconds than these are left."""
        if self.left_s(seconds) >= seconds:
            return self
        later = Deadline(seconds)
        later.seconds = self.seconds
        return later

    def end(self) -> None:
        """Lets no time be left: what would come next would come too late."""
        self._at_s = monotonic()

    def left_s(self, most: float) -> float:
        """Returns the seconds left, at most so many; never below zero."""
        return most if self._at_s is None else min(most, max(0.0, self._at_s - monotonic()))

    @property
    def passed(self) -> bool:
        """True once no time is left."""
        return self._at_s is not None and monotonic() >= self._at_s
