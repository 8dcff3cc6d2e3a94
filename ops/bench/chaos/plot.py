"""The run as a picture: results over time above, a mark for each fault below. Plain SVG, so that it
needs nothing that CI doesn't install."""

from collections.abc import Iterator, Sequence

from ops.bench.chaos.faults.schedule import SHARES

_WIDTH, _LEFT, _RIGHT = 900, 150, 20
_TOP, _CURVE, _GAP, _ROW = 30, 220, 20, 16
_MARKS_TOP = _TOP + _CURVE + _GAP
_HEIGHT = _MARKS_TOP + _ROW * len(SHARES) + 40
_TICKS = 6


def draw(done: Sequence[tuple[float, int]], faults: Sequence[tuple[float, str]]) -> str:
    """done: (seconds, results so far); faults: (seconds, kind)."""
    end_s = max([at_s for at_s, _ in done] + [at_s for at_s, _ in faults] + [1.0])
    most = max([results for _, results in done] + [1])
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            'font-family="sans-serif" font-size="11">',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
            f'<text x="{_LEFT}" y="18" font-size="13">{most:,} results under '
            f"{len(faults):,} faults</text>",
            *_curve(done, end_s, most),
            *_marks(faults, end_s),
            *_seconds(end_s),
            "</svg>\n",
        ]
    )


def _x(at_s: float, end_s: float) -> float:
    return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * at_s / end_s, 1)


def _curve(done: Sequence[tuple[float, int]], end_s: float, most: int) -> Iterator[str]:
    bottom = _TOP + _CURVE
    points = " ".join(
        f"{_x(at_s, end_s)},{bottom - _CURVE * results / most:.1f}" for at_s, results in done
    )
    yield f'<polyline points="{points}" fill="none" stroke="#08519c" stroke-width="1.5"/>'
    for share in (0, 0.5, 1):
        y = bottom - _CURVE * share
        yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" stroke="#ddd"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{most * share:,.0f}</text>'


def _marks(faults: Sequence[tuple[float, str]], end_s: float) -> Iterator[str]:
    for row, kind in enumerate(SHARES):
        top = _MARKS_TOP + _ROW * row
        name = kind.replace("_", " ")
        yield f'<text x="{_LEFT - 8}" y="{top + 11}" text-anchor="end">{name}</text>'
        path = "".join(
            f"M{_x(at_s, end_s)} {top + 3}v{_ROW - 6}" for at_s, found in faults if found == kind
        )
        yield f'<path d="{path}" stroke="#cb181d"/>'


def _seconds(end_s: float) -> Iterator[str]:
    y = _HEIGHT - 20
    for tick in range(_TICKS + 1):
        at_s = end_s * tick / _TICKS
        yield f'<text x="{_x(at_s, end_s)}" y="{y}" text-anchor="middle">{at_s:.0f} s</text>'
