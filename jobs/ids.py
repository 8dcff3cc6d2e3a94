"""Ids: UUIDs of version 7 (RFC 9562), shown as TypeIDs (`job_01h455vb4pex5vsknk084sn02q`).

Both forms sort by the time they were made: the rows of one job, and of one day, lie together.
"""

from datetime import datetime
from hashlib import sha256
from uuid import UUID

from jobs import clock

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, lower case
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_VALUE = {char: value for value, char in enumerate(_ALPHABET)}
LENGTH = 26  #: characters of the part after the prefix
DIGITS = "[0-7][0-9a-hjkmnp-tv-z]{25}"
"""Regular expression of that part."""
_SHIFTS = range(5 * (LENGTH - 2), -1, -10)
_VERSION_AND_VARIANT = 0x7 << 76 | 0x2 << 62
_RANDOM = (1 << 80) - 1 & ~(0xF << 76 | 0x3 << 62)


def new() -> UUID:
    """Returns a UUID of version 7: 48 bits of milliseconds, then 74 random bits."""
    return _made(clock.now(), clock.random_bits(80))


def new_shown(prefix: str) -> str:
    """Returns the TypeID of a new UUID, of which no object is made."""
    return _shown(prefix, _value(clock.now(), clock.random_bits(80)))


def derived(at: datetime, *names: str) -> UUID:
    """Returns the UUID of this time whose random bits are a hash of the names."""
    digest = sha256("\n".join(names).encode()).digest()
    return _made(at, int.from_bytes(digest[:10]))


def _made(at: datetime, bits: int) -> UUID:
    return UUID(int=_value(at, bits))


def _value(at: datetime, bits: int) -> int:
    """Returns a UUID of version 7 as a number; of 80 bits, those of version and variant are set."""
    return int(at.timestamp() * 1000) << 80 | bits & _RANDOM | _VERSION_AND_VARIANT


def earliest(at: datetime) -> UUID:
    """Returns a lower bound of the ids that were made at that time or later."""
    return UUID(int=max(0, int(at.timestamp() * 1000)) << 80)


def show(prefix: str, id: UUID) -> str:
    """Returns the TypeID of a UUID."""
    return _shown(prefix, id.int)


def _shown(prefix: str, value: int) -> str:
    digits = [_PAIRS[value >> shift & 1023] for shift in _SHIFTS]
    return f"{prefix}_{''.join(digits)}"


def made_at(prefix: str, text: str) -> float:
    """Returns when a TypeID was made, as Unix time, s. Raises ValueError for other texts."""
    id = parse(prefix, text)
    if id is None:
        raise ValueError(f"{text!r} is no id that begins with {prefix}_")
    return (id.int >> 80) / 1000


def pattern(*prefixes: str) -> str:
    """Returns the regular expression of ids with one of these prefixes."""
    return f"^({'|'.join(prefixes)})_{DIGITS}$"


def parse(prefix: str | tuple[str, ...], text: str) -> UUID | None:
    """Returns the UUID of a TypeID with this prefix, or one of these; None for other texts."""
    head, _, digits = text.rpartition("_")
    if (
        head not in ((prefix,) if isinstance(prefix, str) else prefix)
        or len(digits) != LENGTH
        or digits[0] > "7"
    ):
        return None
    value = 0
    for char in digits:
        if char not in _VALUE:
            return None
        value = value << 5 | _VALUE[char]
    return UUID(int=value)
