"""Picture of a run: results over time above, a mark for each fault below.

Plain SVG, since CI doesn't install matplotlib.
"""

from collections.abc import Sequence

from ops.bench.chaos.faults.schedule import SHARES

_WIDTH, _LEFT, _RIGHT = 900, 150, 20
_TOP, _CURVE, _GAP, _ROW = 30, 220, 20, 16
_BOTTOM = _TOP + _CURVE
_HEIGHT = _BOTTOM + _GAP + _ROW * len(SHARES) + 40
_TICKS = 6


def draw(done: Sequence[tuple[float, int]], faults: Sequence[tuple[float, str]]) -> str:
    """SVG text. done: (seconds, results so far); faults: (seconds, kind)."""
    end_s = max([1.0, *(at_s for at_s, _ in done), *(at_s for at_s, _ in faults)])
    most = max([1, *(results for _, results in done)])

    def x(at_s: float) -> float:
        """Position of a time."""
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * at_s / end_s, 1)

    def text(x: float, y: float, words: str, anchor: str = "end") -> str:
        """Element of text."""
        return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{words}</text>'

    points = " ".join(f"{x(at_s)},{_BOTTOM - _CURVE * n / most:.1f}" for at_s, n in done)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        text(_LEFT, 18, f"{most:,} results under {len(faults):,} faults", "start"),
        f'<polyline points="{points}" fill="none" stroke="#08519c" stroke-width="1.5"/>',
    ]
    for share in (0, 0.5, 1):
        y = _BOTTOM - _CURVE * share
        lines.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        lines.append(text(_LEFT - 8, y + 4, f"{most * share:,.0f}"))
    for row, kind in enumerate(SHARES):
        top = _BOTTOM + _GAP + _ROW * row
        lines.append(text(_LEFT - 8, top + 11, kind.replace("_", " ")))
        marks = (f"M{x(at_s)} {top + 3}v{_ROW - 6}" for at_s, found in faults if found == kind)
        lines.append(f'<path d="{"".join(marks)}" stroke="#cb181d"/>')
    for tick in range(_TICKS + 1):
        at_s = end_s * tick / _TICKS
        lines.append(text(x(at_s), _HEIGHT - 20, f"{at_s:.0f} s", "middle"))
    return "\n".join([*lines, "</svg>\n"])
