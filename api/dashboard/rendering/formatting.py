"""Template filters that format numbers, sizes and times."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Any

from markupsafe import Markup, escape

from jobs import clock
from jobs.models.routing.route import Share

NONE = "–"
_SEPARATED = re.compile(r"(?<=[^/:])(?=[/?&])")
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")


def number(value: float | None, digits: int = 0) -> str:
    """Formats 12,345; or 0.42 with digits."""
    return NONE if value is None else f"{value:,.{digits}f}"


def exact(value: float | None) -> str:
    """Formats without rounding: 2.5; 1000000."""
    return NONE if value is None else f"{value:.15g}"


def rate(value: float | None) -> str:
    """Formats a rate: 1,234; 12.3; 0.42."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.{1 if value >= 10 else 2}f}"


def share(value: float | None) -> str:
    """Formats 0.3 as 30 %."""
    return NONE if value is None else f"{100 * value:.0f} %"


def growth(value: float) -> str:
    """Formats 0.1 as +10 %."""
    return f"{100 * value:+.3g} %"


def evidence(value: float) -> str:
    """Formats evidence, which grows by factors: 1; 22.4; 1.2e+09."""
    return f"{value:.3g}"


def by_version(shares: Sequence[Share]) -> dict[str, float]:
    """Returns percents by version, for a bar."""
    return {f"version {share.version}": share.percent for share in shares}


def percents(parts: Mapping[str, float]) -> dict[str, str]:
    """Formats percents by name, for a legend."""
    return {name: f"{exact(value)} %" for name, value in parts.items()}


def many(count: int, thing: str) -> str:
    """Formats a count: 1 slice; 2,345 slices."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def milliseconds(seconds: float | None) -> str:
    """Formats a short time: 0.0123 as 12.3 ms, 4.5 as 4.50 s."""
    if seconds is None:
        return NONE
    ms = 1000 * seconds
    if ms >= 10_000:
        return f"{seconds:,.0f} s"
    if ms >= 999.5:
        return f"{seconds:.2f} s"
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.{1 if ms >= 1 else 2}f} ms"


def duration(seconds: float | None) -> str:
    """Formats a long time: 75 as 1 min 15 s."""
    if seconds is None:
        return NONE
    if seconds < 0.0005:
        return "0 s"
    if seconds < 0.95:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = max(0, round(seconds))
    for size, unit, part, part_unit in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // part
            return (
                f"{whole // size} {unit} {rest} {part_unit}" if rest else f"{whole // size} {unit}"
            )
    return f"{whole} s"


def between(least: float, most: float) -> str:
    """Formats an estimated range in one unit: 457 and 685 as 8 to 12 min."""
    sizes = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    size, unit = next((one for one in sizes if most >= 2 * one[0]), sizes[-1])
    first, last = max(1, round(least / size)), ceil(most / size)
    return f"{first} to {last} {unit}" if first < last else f"{last} {unit}"


def size(count: float | None) -> str:
    """Formats bytes: 1.5 MiB."""
    if count is None:
        return NONE
    power = 0
    while count >= 1024 and power < len(_BYTES) - 1:
        count, power = count / 1024, power + 1
    return f"{count:,.{1 if power and count < 100 else 0}f} {_BYTES[power]}"


def ago(at: datetime | None) -> str:
    """Renders the time since then: 1 min 15 s ago."""
    if at is None:
        return NONE
    return _time(at, f"{duration((clock.now() - at).total_seconds())} ago", "relative")


def age(at: datetime | None) -> str:
    """Renders the time since then in one unit, which rarely changes: 3 min ago."""
    return NONE if at is None else _time(at, _age(at), "relative")


def _age(at: datetime) -> str:
    whole = max(0, round((clock.now() - at).total_seconds()))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if whole >= size:
            return f"{whole // size} {unit} ago"
    return "just now"


def moment(at: datetime | str | None) -> str:
    """Renders a time, or its ISO form in an object of the API: 2026-05-01 12:34:56 UTC.

    A script of the page shows it in the viewer's zone.
    """
    if at is None:
        return NONE
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    return _time(at, f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC", "moment")


def _time(at: datetime, words: str, kind: str) -> Markup:
    """Renders an element with the exact time in UTC, which a pointer shows."""
    exact = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time class="{0}" datetime="{1}" title="{1}">{2}</time>').format(
        kind, exact, words
    )


def sentence(text: str) -> str:
    """Adds a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def coded(text: str) -> Markup:
    """Renders text in backticks as code."""
    parts = (
        Markup("<code>{}</code>").format(part) if n % 2 else escape(part)
        for n, part in enumerate(text.split("`"))
    )
    return Markup().join(parts)


def url(text: str) -> Markup:
    """Renders a URL that breaks before its separators, not in the middle of a word."""
    return Markup("<wbr>").join(part for part in _SEPARATED.split(text) if part)


REASONS = {
    "full": "it has the maximum of entries or size",
    "deadline": "waiting longer would make an entry late",
    "knee": "more entries would save hardly any time",
    "pace": "its first call has waited its share of the pool's launches",
    "drain": "the worker is stopping",
}
"""Flush reasons of launches."""


def spoken(ms: Mapping[str, float]) -> dict[str, str]:
    """Formats milliseconds by name, for a legend."""
    return {name: milliseconds(value / 1000) for name, value in ms.items()}


def counted(counts: Mapping[str, float]) -> dict[str, str]:
    """Formats shares of the sum by name, for a legend."""
    whole = sum(counts.values()) or 1.0
    return {name: share(value / whole) for name, value in counts.items()}


def named(lines: Mapping[str, object]) -> dict[str, str]:
    """Returns names without text, for a legend."""
    return dict.fromkeys(lines, "")


FILTERS: Mapping[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        number, exact, many, rate, share, milliseconds, duration, size, ago, age, moment, spoken,
        sentence, counted, named, url, between, coded, growth, evidence, by_version, percents,
    )
}  # fmt: skip
