"""Time range of a page, from its URL: a preset that ends now, or from one time until another."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Depends, Query

from jobs import clock
from jobs.errors import Fault, Invalid

PRESETS: Mapping[str, tuple[str, timedelta]] = {
    "15m": ("15 min", timedelta(minutes=15)),
    "1h": ("1 h", timedelta(hours=1)),
    "24h": ("24 h", timedelta(hours=24)),
    "7d": ("7 d", timedelta(days=7)),
}
"""Words and length by the name in the URL."""

Preset = Annotated[str, Query(alias="range", pattern=rf"^({'|'.join(PRESETS)})?$")]
Moment = Annotated[str, Query(pattern=r"^(\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?)?)?$")]


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Parameters of the URL, and the times that they stand for."""

    preset: str = ""  #: name of a preset; "": none
    since: str = ""  #: with date and time, as an input takes it
    until: str = ""
    start: datetime | None = None  #: None: unbounded
    end: datetime | None = None  #: excluded; None: unbounded

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Non-empty parameters."""
        values = {"range": self.preset, "since": self.since, "until": self.until}
        return tuple((name, value) for name, value in values.items() if value)

    @property
    def presets(self) -> Mapping[str, str]:
        """Words of the presets by name."""
        return {name: words for name, (words, _) in PRESETS.items()}


def parse_range(preset: Preset = "", since: Moment = "", until: Moment = "") -> TimeRange:
    """Parses the parameters; times that are given win over a preset. Raises Invalid."""
    if since or until:
        since, until = _full(since), _full(until)
        return TimeRange("", since, until, _moment("since", since), _moment("until", until))
    if not preset:
        return TimeRange()
    minute = clock.now().replace(second=0, microsecond=0)  # queries of a minute are cached as one
    return TimeRange(preset, start=minute - PRESETS[preset][1])


Ranged = Annotated[TimeRange, Depends(parse_range)]


def _full(given: str) -> str:
    return f"{given}T00:00" if len(given) == len("2026-01-31") else given


def _moment(name: str, given: str) -> datetime | None:
    """Parses a time in UTC. Raises Invalid."""
    try:
        return datetime.fromisoformat(given).replace(tzinfo=UTC) if given else None
    except ValueError:
        why = f"{given} is not a time; write 2026-01-31T12:00"
        raise Invalid(why, faults=[Fault(("query", name), "invalid", why)]) from None
