"""What waits in a scheduler, and what leaves it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from workers.scheduler.cost import LaunchSize

Place = tuple[Any, ...]
"""What goes first among the items of one tenant: the least."""

FlushReason = Literal["full", "deadline", "knee", "pace", "drain"]


@dataclass(slots=True, eq=False)
class Entry:
    """An item or a call, prepared. owner: who is told of its end; seq: the owner's name for it;
    part: its place in the list that it is of, where it is of one.

    size: in the engine's unit; bucket: 0 for an engine without padding; arrived_s: monotonic;
    tenant, weight: whose turn an item waits for; place: among those of its tenant; prepare_s: how
    long it was being prepared, which of an item comes after its arrival, of a call at the end of
    its waiting.
    """

    owner: Any
    seq: int
    lane: str
    bucket: int
    size: int
    data: Any
    arrived_s: float
    tenant: str = ""
    weight: float = 1.0
    place: Place = ()
    part: int = 0
    prepare_s: float = 0.0


@dataclass(slots=True, eq=False)
class Launch:
    """One micro-batch for the engine: calls first, then items. All share `params`.

    predicted_s, engine_s: time on the device, before and after; closed_s, started_s: when its
    entries were chosen and when the engine got them, monotonic; sized: its time goes by size;
    width: launches that shared the device, where it has room for many.
    """

    params: Mapping[str, Any]
    reason: FlushReason
    calls: Sequence[Entry]
    items: Sequence[Entry]
    closed_s: float
    pads: bool = False
    sized: bool = False
    predicted_s: float = 0.0
    started_s: float = 0.0
    engine_s: float = 0.0
    width: int = 1
    entries: Sequence[Entry] = field(init=False)
    bucket: int = field(init=False)

    def __post_init__(self) -> None:
        self.entries = [*self.calls, *self.items]
        self.bucket = max((entry.bucket for entry in self.entries), default=0)

    @property
    def work(self) -> LaunchSize:
        """What the engine works through, padding included."""
        return LaunchSize.from_sizes(
            [entry.size for entry in self.entries], self.bucket, pads=self.pads
        )

    @property
    def device_us(self) -> list[int]:
        """Each entry's share of the time on the device, microseconds: by size where that is what
        the time goes by."""
        shares = [max(1, entry.size) if self.sized else 1 for entry in self.entries]
        each = self.engine_s * 1e6 / self.width / max(1, sum(shares))
        return [round(each * share) for share in shares]

    @property
    def units(self) -> int:
        """Real size: the sum over its entries."""
        return sum(entry.size for entry in self.entries)

    @property
    def padded_units(self) -> int:
        """Rows times the longest where the engine pads; else the real size."""
        return int(self.work.units)
