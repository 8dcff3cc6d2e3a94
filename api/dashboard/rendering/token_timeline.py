"""Timeline of a call that generated: its stages, and a mark for each time that it got tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from jobs.calls.records import CallRecord

_STAGES = ("queue", "prefill", "decode")
_WIDTH, _BAND, _HEIGHT = 1000.0, 16, 36


@dataclass(frozen=True, slots=True)
class TokenTimeline:
    """Timeline of one call; times in ms since it was enqueued."""

    stages: Mapping[str, float]  #: ms of each
    token_ms: Sequence[int]

    @property
    def total_ms(self) -> float:
        """End of the last stage."""
        return sum(self.stages.values())

    def drawn(self) -> Markup:
        """Draws the stages as a band, and the tokens as marks under it; `charts.legend` names the
        colours."""
        scale, at, parts = _WIDTH / max(self.total_ms, 0.001), 0.0, []
        for n, (name, ms) in enumerate(self.stages.items()):
            parts.append(
                f'<rect class="c{n}" x="{at * scale:.1f}" width="{ms * scale:.1f}" '
                f'height="{_BAND}"><title>{name}: {ms:,.1f} ms</title></rect>'
            )
            at += ms
        for ms in self.token_ms:
            x = min(_WIDTH, ms * scale)
            parts.append(
                f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_BAND + 3}" y2="{_HEIGHT}"/>'
            )
        return Markup(
            f'<svg class="chart tokens" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT}" role="img" '
            f'preserveAspectRatio="none" aria-label="{self._description()}">{"".join(parts)}</svg>'
        )

    def _description(self) -> str:
        stages = ", ".join(f"{name} {ms:,.0f} ms" for name, ms in self.stages.items())
        if not self.token_ms:
            return f"{stages}; no tokens"
        first, last = self.token_ms[0], self.token_ms[-1]
        return f"{stages}; {len(self.token_ms)} marks, tokens from {first:,} to {last:,} ms"


def token_timeline(record: CallRecord) -> TokenTimeline | None:
    """Returns the timeline of a call; None where it didn't generate."""
    timing: Mapping[str, Any] = record.timing
    if not record.generated:
        return None
    stages = {name: float(timing.get(f"{name}_ms", 0.0)) for name in _STAGES}
    return TokenTimeline(stages, record.token_ms)
