"""What a decision is made from: the lanes, the pool, and the model's rules, at one moment.

Times are seconds on the worker's clock.
"""

from dataclasses import dataclass, replace
from math import inf

from jobs.calls.lanes import ALONE, LanesState, lane_parts
from jobs.models.model import Limits, Model
from workers.scheduler.cost import LaunchSize
from workers.scheduler.lanes import ItemsWaiting

EXPECTED_S = 60.0
"""So long after the latest call there may be another at any moment."""


@dataclass(frozen=True, slots=True)
class LaneView:
    """One lane. calls_due_s: when its most urgent call is due; items_since_s: when its oldest item
    arrived; both infinite where there is none."""

    lane: str
    bucket: int
    calls: int = 0
    calls_units: int = 0
    calls_due_s: float = inf
    items: int = 0
    items_units: int = 0
    items_since_s: float = inf

    @property
    def alone(self) -> bool:
        """Each of its entries is launched by itself."""
        return self.lane.startswith(ALONE)

    @property
    def items_alone(self) -> "LaneView":
        """The lane as if no call waited there."""
        return replace(self, calls=0, calls_units=0, calls_due_s=inf)


@dataclass(frozen=True, slots=True)
class PoolView:
    """The slots that pull from the same lanes (launches at a time, of all replicas): when the
    latest launch left, and how long it was to take; when the first of the *other* slots is free;
    when the latest call came, and how far apart they come."""

    last_launch_s: float = -inf
    last_took_s: float = 0.0
    slots: int = 1
    other_free_s: float = inf
    called_s: float = -inf
    gap_s: float = inf

    @property
    def quiet_s(self) -> float:
        """From when on no call is expected, if none comes until then."""
        return self.called_s + EXPECTED_S

    @property
    def paced_s(self) -> float:
        """From when on launches are evenly spaced. One slot alone is paced by its launches."""
        if self.slots == 1:
            return -inf
        return self.last_launch_s + self.last_took_s / self.slots


@dataclass(frozen=True, slots=True)
class Rules:
    """What the model's entry says. pads: whether a launch costs rows times its longest; sized:
    whether its time goes by the sizes of its entries."""

    limits: Limits
    pads: bool = False
    target_s: float = 0.25
    margin_s: float = 0.0125
    sized: bool = False

    @classmethod
    def of(cls, model: Model) -> "Rules":
        times = model.target_ms / 1000, model.margin_ms / 1000
        return cls(model.limits, model.pads, *times, sized=bool(model.spec.buckets))

    def most_rows(self, bucket: int) -> int:
        """Rows of one launch; where the engine pads, the size budget is one of rows."""
        most, units = self.limits.max_batch, self.limits.max_tokens
        return max(1, min(most, units // bucket)) if self.pads and bucket and units else most

    @property
    def most_units(self) -> int:
        """Size of one launch, where it isn't bounded by rows; 0: not at all."""
        return 0 if self.pads else self.limits.max_tokens

    def row(self, view: LaneView) -> LaunchSize:
        """A row of a lane as far as it is known: as long as they get where the engine pads."""
        waiting = view.calls + view.items
        known = (view.calls_units + view.items_units) / waiting if waiting else view.bucket or 1
        size = view.bucket if self.pads and view.bucket else known
        return LaunchSize.alike(1, size, view.bucket)

    def full_rows(self, view: LaneView) -> int:
        """About as many rows as a launch of this lane takes."""
        most = self.most_rows(view.bucket)
        if not self.most_units:
            return most
        return max(1, min(most, int(self.most_units / max(1.0, self.row(view).units))))


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits centrally, on our own clock. watched_s: until when another slot waits for it;
    launched_ms: of the pool's latest launch, on the lanes' clock; offset_s: from theirs to ours."""

    lanes: tuple[LaneView, ...] = ()
    pool: PoolView = PoolView()
    watched_s: float = -inf
    launched_ms: float = 0.0
    offset_s: float = 0.0

    @classmethod
    def of(cls, look: LanesState, slot: str, slots: int, offset_s: float) -> "Waiting":
        """slot: who looked; slots: launches at a time of one replica."""

        def ours(ms: float) -> float:
            return ms / 1000 + offset_s if ms else -inf

        lanes = tuple(
            LaneView(lane.lane, lane_parts(lane.lane)[1], lane.rows, lane.units, ours(lane.due_ms))
            for lane in look.lanes
        )
        total = max(1, look.replicas) * slots
        others = sorted(look.busy.values())
        idle = total - 1 - len(others)  # without the one that asks
        other_free_s = ours(look.now_ms if idle > 0 else others[-idle]) if total > 1 else inf
        quiet_s = (look.now_ms - look.called_ms) / 1000
        pool = PoolView(
            last_launch_s=ours(look.last_launch_ms),
            last_took_s=look.last_took_ms / 1000,
            slots=total,
            other_free_s=other_free_s,
            called_s=ours(look.called_ms),
            gap_s=max(look.gap_ms / 1000, quiet_s) if look.gap_ms else inf,
        )
        watched_s = -inf if look.watcher == slot else ours(look.watched_ms)
        return cls(lanes, pool, watched_s, look.last_launch_ms, offset_s)


def merged(waiting: Waiting, items: dict[str, ItemsWaiting]) -> list[LaneView]:
    """All lanes, with the calls and the items of each."""
    called = {view.lane for view in waiting.lanes}
    views = [_with_items(view, items.get(view.lane)) for view in waiting.lanes]
    return views + [
        _with_items(LaneView(lane, lane_parts(lane)[1]), found)
        for lane, found in items.items()
        if lane not in called
    ]


def _with_items(view: LaneView, items: ItemsWaiting | None) -> LaneView:
    if items is None:
        return view
    return replace(view, items=items.rows, items_units=items.units, items_since_s=items.since_s)
