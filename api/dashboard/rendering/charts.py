"""Inline SVG charts: no script, colours from the style sheet, figures repeated as ARIA labels."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import ceil, floor, log10

from markupsafe import Markup, escape

Points = Sequence[tuple[float, float]]

_NO_HINTS: Mapping[str, str] = {}
_LEFT, _BOTTOM, _TOP, _RIGHT = 46, 30, 8, 10
_LABEL = 40  # between two labels of one row
_LETTER = 6.5  # of a label, with the space beside it


def spark(values: Sequence[float | None], label: str) -> Markup:
    """Draws a figure over time, newest at the right, with gaps for None."""
    most = max((v for v in values if v is not None), default=0.0) or 1.0
    step = 120 / max(1, len(values) - 1)
    lines: list[list[str]] = [[]]
    for n, value in enumerate(values):
        if value is None:
            lines.append([])
        else:
            lines[-1].append(f"{n * step:.1f},{31 - 28 * value / most:.1f}")
    drawn = "".join(
        f'<polyline class="line" points="{" ".join(line)}"/>' for line in lines if len(line) > 1
    )
    last = next((v for v in reversed(values) if v is not None), None)
    description = label if last is None else f"{label}: now {last:.3g}, at most {most:.3g}"
    return Markup(
        '<svg class="chart spark" viewBox="0 0 120 34" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(description)}"><line class="axis" x1="0" y1="32" x2="120" y2="32"/>'
        f"{drawn}</svg>"
    )


def meter(ratio: float | None, label: str, kind: int = 0) -> Markup:
    """Draws a bar of a ratio of 0 to 1."""
    part = min(1.0, max(0.0, ratio or 0.0))
    return Markup(
        f'<svg class="meter" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}: {100 * part:.0f} %"><rect class="back" width="100" '
        f'height="8" rx="1"/><rect class="c{kind}" width="{100 * part:.1f}" height="8" rx="1"/>'
        "</svg>"
    )


def stack(parts: Mapping[str, float], label: str, unit: str = "ms") -> Markup:
    """Draws the parts of a sum as one bar; `legend` names the colours."""
    whole, at, drawn = sum(parts.values()) or 1.0, 0.0, []
    for n, (name, value) in enumerate(parts.items()):
        width = 600 * value / whole
        drawn.append(
            f'<rect class="{_colour(n)}" x="{at:.1f}" width="{max(0.0, width - 1):.1f}" '
            f'height="16">'
            f"<title>{escape(name)}: {value:.3g} {escape(unit)}</title></rect>"
        )
        at += width
    description = ", ".join(f"{name} {value:.3g} {unit}" for name, value in parts.items())
    return Markup(
        '<svg class="chart stack" viewBox="0 0 600 16" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}: {escape(description)}">{"".join(drawn)}</svg>'
    )


def legend(parts: Mapping[str, str], hints: Mapping[str, str] = _NO_HINTS) -> Markup:
    """Lists names with their colours and texts; `hints`: tooltips by name."""
    rows = "".join(
        f'<li title="{escape(hints.get(name, ""))}"><svg viewBox="0 0 10 10" aria-hidden="true">'
        f'<rect class="{_colour(n)}" width="10" height="10" rx="2"/></svg>'
        f"{escape(name)} {escape(text)}</li>"
        for n, (name, text) in enumerate(parts.items())
    )
    return Markup(f'<ul class="legend">{rows}</ul>')


def _colour(n: int) -> str:
    """Returns the class of the n-th of six colours; later ones are dashed."""
    return f"c{n % 6}" if n < 6 else f"c{n % 6} later"


def histogram(counts: Mapping[str, float], label: str, what: str) -> Markup:
    """Draws a histogram; `counts`: by label of the bar; `what`: label of the axis."""
    width, height = 480, 150
    most, bars, names = max(counts.values(), default=0.0) or 1.0, [], []
    step = (width - _LEFT - _RIGHT) / max(1, len(counts))
    every = max(
        1, ceil(max(map(len, counts), default=0) * _LETTER / step)
    )  # labels must not overlap
    for n, (name, count) in enumerate(counts.items()):
        tall = (height - _TOP - _BOTTOM) * count / most
        x = _LEFT + n * step
        bars.append(
            f'<rect class="bar" x="{x + 2:.1f}" y="{height - _BOTTOM - tall:.1f}" '
            f'width="{max(1.0, step - 4):.1f}" height="{tall:.1f}"><title>{escape(name)}: '
            f"{count:,.0f}</title></rect>"
        )
        if n % every:
            continue
        names.append(
            f'<text x="{x + step / 2:.1f}" y="{height - _BOTTOM + 13}" text-anchor="middle">'
            f"{escape(name)}</text>"
        )
    description = ", ".join(f"{name}: {count:,.0f}" for name, count in counts.items() if count)
    return _framed(
        width, height, f"{label}: {description or 'nothing'}",
        _axes(width, height, what, _ticks(most), most) + "".join(bars) + "".join(names),
    )  # fmt: skip


def curve(series: Mapping[str, Points], label: str, x: str, y: str, aim: float = 0.0) -> Markup:
    """Draws lines over a common x; `aim`: upper limit to mark, 0: none."""
    width, height = 480, 200
    points = [point for line in series.values() for point in line]
    most_x = max((p[0] for p in points), default=1.0) or 1.0
    most_y = max([p[1] for p in points] + [aim]) if points else aim or 1.0
    most_y = _ticks(most_y or 1.0)[-1]

    def at(px: float, py: float) -> tuple[float, float]:
        across = (width - _LEFT - _RIGHT) * px / most_x
        return _LEFT + across, height - _BOTTOM - (height - _TOP - _BOTTOM) * py / most_y

    drawn = []
    for n, (name, line) in enumerate(series.items()):
        placed = " ".join(f"{px:.1f},{py:.1f}" for px, py in (at(*point) for point in line))
        drawn.append(
            f'<polyline class="line {_colour(n)}" points="{placed}"><title>{escape(name)}</title>'
            "</polyline>"
        )
    if aim:
        (x1, level), (x2, _) = at(0, aim), at(most_x, aim)
        drawn.append(
            f'<line class="aim" x1="{x1:.1f}" x2="{x2:.1f}" y1="{level:.1f}" y2="{level:.1f}"/>'
            f'<text x="{x2:.1f}" y="{level - 3:.1f}" text-anchor="end">target</text>'
        )
    marks = "".join(
        f'<text x="{at(tick, 0)[0]:.1f}" y="{height - _BOTTOM + 13}" text-anchor="middle">'
        f"{tick:g}</text>"
        for tick in _ticks(most_x)
        if tick <= most_x
    )
    description = "; ".join(
        f"{name}: {line[0][1]:.3g} to {line[-1][1]:.3g} {y}"
        for name, line in series.items()
        if line
    )
    unit = f'<text x="{_LEFT - 6}" y="{height - _BOTTOM + 13}" text-anchor="end">{escape(y)}</text>'
    return _framed(
        width, height, f"{label}: {description or 'nothing'}",
        unit + _axes(width, height, x, _ticks(most_y), most_y) + marks + "".join(drawn),
    )  # fmt: skip


def over_time(
    lines: Mapping[str, Sequence[float | None]], times: Sequence[datetime], label: str, unit: str
) -> Markup:
    """Draws lines over times that are evenly spread, with gaps for None; times are in UTC."""
    width, height = 480, 150
    known = [value for line in lines.values() for value in line if value is not None]
    most = _ticks(max(known, default=0.0) or 1.0)[-1]
    step = (width - _LEFT - _RIGHT) / max(1, len(times) - 1)

    def place(n: int, value: float) -> str:
        y = height - _BOTTOM - (height - _TOP - _BOTTOM) * value / most
        return f"{_LEFT + n * step:.1f},{y:.1f}"

    drawn = []
    for colour, (name, line) in enumerate(lines.items()):
        pieces: list[list[str]] = [[]]
        for n, value in enumerate(line):
            if value is None:
                pieces.append([])
            else:
                pieces[-1].append(place(n, value))
        path = "".join(f"M{' '.join(piece * (1 + (len(piece) == 1)))}" for piece in pieces if piece)
        drawn.append(
            f'<path class="line {_colour(colour)}" d="{path}"><title>{escape(name)}</title></path>'
        )
    marks = "".join(
        f'<text x="{_LEFT + n * step:.1f}" y="{height - _BOTTOM + 13}" text-anchor="middle">'
        f"{text}</text>"
        for n, text in _time_marks(times)
    )
    description = "; ".join(f"{name} {_summary(line)}" for name, line in lines.items())
    return _framed(
        width, height, f"{label}, {unit}: {description or 'nothing'}",
        _axes(width, height, f"{unit}, by time (UTC)", _ticks(most), most) + marks + "".join(drawn),
    )  # fmt: skip


def _summary(line: Sequence[float | None]) -> str:
    known = [value for value in line if value is not None]
    if not known:
        return "not known"
    mean = sum(known) / len(known)
    return f"now {known[-1]:.3g}, mean {mean:.3g}, at most {max(known):.3g}"


_MARKS_S = (300, 3600, 4 * 3600, 86_400, 5 * 86_400)


def _time_marks(times: Sequence[datetime]) -> list[tuple[int, str]]:
    """Returns (position, text) of times at whole steps, at most eight."""
    if not times:
        return []
    length_s = (times[-1] - times[0]).total_seconds()
    every_s = next((s for s in _MARKS_S if length_s / s <= 7), _MARKS_S[-1])
    form = "%H:%M" if every_s < 86_400 else "%d %b"
    marked: dict[float, tuple[int, str]] = {}
    for n, at in enumerate(times):  # a step may not begin with a whole one
        marked.setdefault(at.timestamp() // every_s, (n, at.strftime(form)))
    first = times[0].timestamp() // every_s
    return [mark for whole, mark in marked.items() if whole > first]


def interval(bounds: tuple[float, float, float], label: str, marks: Mapping[str, float]) -> Markup:
    """Draws a growth, (low, middle, high), on a scale with 0 and `marks`; all are shares."""
    width, height, middle = 400, 52, 16
    places = [0.0, *bounds, *marks.values()]
    least, most = min(places), max(places)
    room = 0.1 * ((most - least) or 1.0)

    def x(share: float) -> float:
        return (width - 2) * (share - least + room) / (most - least + 2 * room) + 1

    zero, (low, centre, high) = x(0.0), map(x, bounds)
    drawn = (
        f'<line class="axis" x1="0" x2="{width}" y1="{middle}" y2="{middle}"/>'
        f'<line class="axis" x1="{zero:.1f}" x2="{zero:.1f}" y1="2" y2="{height - 20}"/>'
    )
    for name, at in marks.items():
        drawn += (
            f'<line class="aim" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="2" y2="{height - 20}"/>'
            f'<text x="{x(at):.1f}" y="{height - 6}" text-anchor="middle">{escape(name)}</text>'
        )
    if all(abs(x(at) - zero) > _LABEL for at in marks.values()):
        drawn += f'<text x="{zero:.1f}" y="{height - 6}" text-anchor="middle">0</text>'
    drawn += (
        f'<rect class="bar" x="{low:.1f}" y="{middle - 4}" width="{max(1.0, high - low):.1f}" '
        f'height="8" rx="2"/><circle class="dot" cx="{centre:.1f}" cy="{middle}" r="6"/>'
    )
    return _framed(width, height, label, drawn)


def _framed(width: int, height: int, description: str, drawn: str) -> Markup:
    return Markup(
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(description)}">{drawn}</svg>'
    )


def _axes(width: int, height: int, what: str, ticks: Sequence[float], most: float) -> str:
    """Draws grid lines with their numbers, and the label of the x axis."""
    drawn = []
    for tick in ticks:
        if tick > most:
            continue
        y = height - _BOTTOM - (height - _TOP - _BOTTOM) * tick / most
        drawn.append(
            f'<line class="axis" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y + 3:.1f}" text-anchor="end">{tick:,g}</text>'
        )
    middle = (_LEFT + width - _RIGHT) / 2
    drawn.append(f'<text x="{middle}" y="{height - 3}" text-anchor="middle">{escape(what)}</text>')
    return "".join(drawn)


def _ticks(most: float) -> list[float]:
    """Returns three to six round numbers from 0 to `most` or just beyond."""
    power: float = 10.0 ** floor(log10(most / 4)) if most > 0 else 1.0
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if most / (s * power) <= 5)
    return [n * step for n in range(ceil(most / step) + 1)]
