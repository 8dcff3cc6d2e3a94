"""Time and randomness. Everything asks here, so that a test can own them."""

import random
import time
from datetime import UTC, datetime, timedelta

_random = random.Random()
_secret = random.SystemRandom()


def now() -> datetime:
    """Wall-clock time, in UTC."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds on a clock that never goes back; only differences mean anything."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def random_bits(bits: int) -> int:
    """Of the kernel: from many ids nobody can tell the next, or how many others got."""
    return _secret.getrandbits(bits)


def chance(share: float) -> bool:
    """Whether something that happens with this probability, 0 to 1, happens now."""
    return _random.random() < share


def jitter(most: float) -> float:
    """A random number of 0 to `most`."""
    return _random.uniform(0.0, most)


def ago(seconds: float) -> datetime:
    """The wall-clock time so many seconds before now."""
    return now() - timedelta(seconds=seconds)
