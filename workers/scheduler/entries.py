"""Entries that wait in a scheduler, and launches that leave it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from jobs.calls.lanes import ALONE
from jobs.models.inputs.generation import TokenUsage
from workers.scheduler.cost import LaunchSize

Place = tuple[Any, ...]
"""Sort key among the items of one tenant: the least goes first."""

FlushReason = Literal["full", "deadline", "knee", "pace", "drain"]


@dataclass(slots=True, eq=False)
class Entry:
    """Item or call, prepared."""

    owner: Any  #: notified of its end
    seq: int  #: the owner's number for it
    lane: str
    bucket: int  #: 0 for an engine without padding
    size: int  #: in the engine's unit
    data: Any  #: what the engine takes
    arrived_s: float  #: monotonic
    tenant: str = ""  #: whose turn an item waits for
    weight: float = 1.0  #: the tenant's fair share weight
    place: Place = ()  #: among the tenant's items
    part: int = 0  #: index in the list of inputs that a call is part of
    #: seconds of preparation: after an item's arrival, at the end of a call's wait
    prepare_s: float = 0.0
    tokens: TokenUsage | None = None  #: billed tokens, where the output of a chat counts them
    truncated: int = 0  #: tokens of its text that were cut away


@dataclass(slots=True, eq=False)
class Launch:
    """Micro-batch for the engine: calls first, then items; all share `params`."""

    params: Mapping[str, Any]
    reason: FlushReason
    calls: Sequence[Entry]
    items: Sequence[Entry]
    closed_s: float  #: when its entries were chosen, monotonic
    pads: bool = False
    sized: bool = False  #: True if its time goes by size
    predicted_s: float = 0.0  #: time on the device, predicted
    started_s: float = 0.0  #: when the engine got it, monotonic
    engine_s: float = 0.0  #: time on the device, measured
    width: int = 1  #: launches that shared the device, where it runs several
    background: bool = False  #: True if it gives way to launches of calls
    bulk: bool = False  #: True if it gives way to calls of tenants who have few
    token: int = 0  #: of the take that its calls came with
    entries: Sequence[Entry] = field(init=False)
    bucket: int = field(init=False)

    def __post_init__(self) -> None:
        self.entries = [*self.calls, *self.items]
        self.bucket = max((entry.bucket for entry in self.entries), default=0)

    @property
    def calls_alone(self) -> bool:
        """True where its calls run alone: a worker died, or its device failed, with them."""
        return len(self.calls) > 0 and self.calls[0].owner.lane.startswith(ALONE)

    @property
    def work(self) -> LaunchSize:
        """Size that the engine works through, padding included."""
        return LaunchSize.from_sizes(
            [entry.size for entry in self.entries], self.bucket, pads=self.pads
        )

    @property
    def device_us(self) -> list[int]:
        """Microseconds of device time for each entry: by size where the time goes by that, else
        equal."""
        shares = [max(1, entry.size) if self.sized else 1 for entry in self.entries]
        each = self.engine_s * 1e6 / self.width / max(1, sum(shares))
        return [round(each * share) for share in shares]

    @property
    def units(self) -> int:
        """Sum of the entries' sizes, without padding."""
        return sum(entry.size for entry in self.entries)

    @property
    def padded_units(self) -> int:
        """Rows times the longest where the engine pads; else the sum of sizes."""
        return int(self.work.units)
