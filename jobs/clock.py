"""Time and randomness, in one module so that tests can control them."""

import random
import time
from datetime import UTC, datetime, timedelta

_random = random.Random()
_secret = random.SystemRandom()


def now() -> datetime:
    """Returns the wall-clock time, in UTC."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Returns seconds on a clock that never goes back; only differences have a meaning."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    """Blocks for so many seconds."""
    time.sleep(seconds)


def random_bits(bits: int) -> int:
    """Returns random bits of the kernel: ids made of them can't be predicted."""
    return _secret.getrandbits(bits)


def chance(share: float) -> bool:
    """Returns True with this probability, 0 to 1."""
    return _random.random() < share


def jitter(most: float) -> float:
    """Returns a random number from 0 to `most`."""
    return _random.uniform(0.0, most)


def ago(seconds: float) -> datetime:
    """Returns the wall-clock time so many seconds before now."""
    return now() - timedelta(seconds=seconds)
