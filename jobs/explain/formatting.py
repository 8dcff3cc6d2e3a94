"""Formatting of figures in findings."""


def duration(seconds: float) -> str:
    """Formats a duration: `12 ms`, `1.4 s`, `3 min`, `2.5 h`."""
    if seconds < 0.995:
        return f"{seconds * 1000:.3g} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.3g} h"


def percent(share: float) -> str:
    """Formats a share of 0 to 1: `37 %`."""
    return f"{100 * share:.0f} %"


def count(number: float, one: str, many: str = "") -> str:
    """Formats a count with its noun: `1 lane`, `14 lanes`, `2,400 tokens`."""
    shown = f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"
    return f"{shown} {one if shown == '1' else many or one + 's'}"
