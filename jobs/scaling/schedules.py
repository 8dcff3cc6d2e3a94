"""Schedules: replicas that a pool has at certain times, by the five fields of cron."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import ConfigDict

MOST_HOURS = 168.0  # of one schedule
_MINUTE_S = 60
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))


@dataclass(frozen=True, slots=True)
class Schedule:
    """Replicas from each time that cron names, for some hours; they boot before it."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    cron: str  #: minute hour day month weekday; 0 and 7 are Sunday
    replicas: int
    hours: float  #: for which they are kept
    timezone: str = "UTC"

    def problems(self) -> Iterator[str]:
        """Yields what is wrong with it."""
        try:
            parse(self.cron)
        except ValueError as error:
            yield f"cron {self.cron!r}: {error}"
        try:
            ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            yield f"timezone {self.timezone!r}: is not known"
        if not 0 < self.hours <= MOST_HOURS:
            yield f"hours: above 0, up to {MOST_HOURS:g}"
        if self.replicas < 1:
            yield "replicas: 1 or more"

    def is_due(self, at_s: float, ahead_s: float) -> bool:
        """Returns True from ahead_s before each time until its hours are over. at_s: Unix time."""
        return _starts_between(
            self.cron,
            self.timezone,
            int((at_s - 3600 * self.hours) // _MINUTE_S) + 1,
            int((at_s + ahead_s) // _MINUTE_S),
        )


def parse(cron: str) -> list[frozenset[int] | None]:
    """Returns the values of each field; None: any. Raises ValueError with what is wrong."""
    parts = cron.split()
    if len(parts) != len(_FIELDS):
        raise ValueError("needs five fields: minute hour day month weekday")
    return [
        _values(part, *field) if part != "*" else None
        for part, field in zip(parts, _FIELDS, strict=True)
    ]


def _values(text: str, name: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        numbers = [low, high] if span == "*" else [first, last or (high if step else first)]
        try:
            begin, end, every = int(numbers[0]), int(numbers[1]), int(step or 1)
        except ValueError:
            raise ValueError(f"{name} {part!r} is no number, range or step") from None
        if not low <= begin <= end <= high or every < 1:
            raise ValueError(f"{name} {part!r} is not within {low} to {high}")
        found.update(range(begin, end + 1, every))
    return frozenset(0 if name == "weekday" and value == 7 else value for value in found)


@lru_cache(maxsize=256)
def _starts_between(cron: str, timezone: str, first: int, last: int) -> bool:
    """Returns True if a time of cron is among these minutes since 1970, both included."""
    fields, zone = parse(cron), ZoneInfo(timezone)
    begin = datetime.fromtimestamp(first * _MINUTE_S, UTC)
    return any(
        _matches(fields, (begin + timedelta(minutes=n)).astimezone(zone))
        for n in range(last - first + 1)
    )


def _matches(fields: list[Any], at: datetime) -> bool:
    minute, hour, day, month, weekday = fields
    if any(
        values is not None and value not in values
        for values, value in ((minute, at.minute), (hour, at.hour), (month, at.month))
    ):
        return False
    on_day = day is None or at.day in day
    on_weekday = weekday is None or at.isoweekday() % 7 in weekday
    # As in cron: where both are given, either will do.
    return on_day or on_weekday if day and weekday else on_day and on_weekday
