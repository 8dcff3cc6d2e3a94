"""Durations such as `24h`, `1h30m`, `7d`."""

import re

_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([dhms])")
_WHOLE = re.compile(f"(?:{_PART.pattern})+")
MAX_S = 315_360_000.0  #: Longest duration: ten years.


def seconds(text: str) -> float:
    """Parses a duration. Raises ValueError."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is no duration; write 24h, 90m, 1h30m or 7d")
    total_s = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    if not 0 < total_s <= MAX_S:
        raise ValueError(f"{text!r} is nothing, or more than ten years")
    return total_s
