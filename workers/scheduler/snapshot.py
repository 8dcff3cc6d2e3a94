"""Inputs of a decision: lanes, pool and rules at one moment, in seconds on the worker's clock."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from jobs.calls.lanes import ALONE, LanesState, lane_parts, stays_on_demand
from jobs.calls.tiers.tier import faster_stay, is_slower, tier_of
from jobs.models.model import DEFAULT_ROWS, Limits, Model
from workers.scheduler.cost import LaunchSize
from workers.scheduler.lanes import ItemsWaiting

EXPECTED_S = 60.0  # after the latest call another is expected at any moment


@dataclass(frozen=True, slots=True)
class LaneView:
    """One lane."""

    lane: str
    bucket: int
    calls: int = 0
    calls_units: int = 0  #: sum of their sizes
    calls_due_s: float = inf  #: when the most urgent call is due; inf without calls
    calls_turn: float = 0.0  #: least virtual time of the calls' tenants
    urgent: int = 0  # more calls, which are due too soon for this worker
    items: int = 0
    items_units: int = 0  #: sum of their sizes
    items_since_s: float = inf  #: when the oldest item arrived; inf without items
    items_turn: float = 0.0  #: least virtual time of the items' tenants

    @property
    def alone(self) -> bool:
        """True if each entry is launched by itself."""
        return self.lane.startswith(ALONE)

    @property
    def stays(self) -> bool:
        """True if spot workers don't take its calls while others are ready."""
        return stays_on_demand(self.lane)

    @property
    def items_alone(self) -> "LaneView":
        """Lane as if no call waited in it."""
        return replace(self, calls=0, calls_units=0, calls_due_s=inf)


@dataclass(frozen=True, slots=True)
class CheaperTier:
    """Workers on which a call costs less."""

    ratio: float  #: time of their launches by that of ours
    free_s: Sequence[float]  #: when each slot is free
    number: int  #: of the tier
    spot: bool = False


@dataclass(frozen=True, slots=True)
class PoolView:
    """Slots that pull from the same lanes: those of the workers of our tier."""

    last_launch_s: float = -inf  #: when the latest launch left
    last_took_s: float = 0.0  #: its predicted time
    slots: int = 1  #: launches at a time, of all replicas of our tier
    other_free_s: float = inf  #: when the first of the other slots is free
    called_s: float = -inf  #: when the latest call came
    gap_s: float = inf  #: time between calls
    faster: bool = False  #: there are faster tiers
    faster_stay: bool = False  #: and some of them aren't spot
    cheaper: tuple[CheaperTier, ...] = ()  #: other tiers that cost less

    @property
    def quiet_s(self) -> float:
        """Time from which no call is expected, if none comes until then."""
        return self.called_s + EXPECTED_S

    @property
    def paced_s(self) -> float:
        """Time from which launches are evenly spaced; a single slot is paced by its launches."""
        if self.slots == 1:
            return -inf
        return self.last_launch_s + self.last_took_s / self.slots


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of a model's entry."""

    limits: Limits
    pads: bool = False  #: True if a launch costs rows times its longest
    target_s: float = 0.25
    margin_s: float = 0.0125
    sized: bool = False  #: True if its time goes by the sizes of its entries
    shapes: bool = False  #: True if only entries of one bucket fit a launch

    @classmethod
    def from_model(cls, model: Model) -> "Rules":
        """Returns the rules of a model."""
        times = model.target_ms / 1000, model.margin_ms / 1000
        spec = model.spec
        sized = bool(spec.buckets)
        return cls(model.limits, model.pads, *times, sized=sized, shapes=spec.shapes)

    def most_rows(self, bucket: int) -> int:
        """Returns the most rows of a launch; where the engine pads, the size budget limits rows."""
        most, units = self.limits.max_batch or DEFAULT_ROWS, self.limits.max_tokens
        return max(1, min(most, units // bucket)) if self.pads and bucket and units else most

    @property
    def most_units(self) -> int:
        """Most size of a launch that isn't bounded by rows; 0: no bound."""
        return 0 if self.pads else self.limits.max_tokens

    def row(self, view: LaneView) -> LaunchSize:
        """Returns the size of a lane's row as far as known: the bucket's where the engine pads,
        else the mean."""
        waiting = view.calls + view.items
        known = (view.calls_units + view.items_units) / waiting if waiting else view.bucket or 1
        size = view.bucket if self.pads and view.bucket else known
        return LaunchSize.alike(1, size, view.bucket)

    def full_rows(self, view: LaneView) -> int:
        """Returns about how many rows a launch of this lane takes."""
        most = self.most_rows(view.bucket)
        if not self.most_units:
            return most
        return max(1, min(most, int(self.most_units / max(1.0, self.row(view).units))))


@dataclass(frozen=True, slots=True)
class Waiting:
    """Entries that wait centrally, on the worker's clock."""

    lanes: tuple[LaneView, ...] = ()
    pool: PoolView = PoolView()
    watched_s: float = -inf  #: until when another slot watches the lanes
    launched_ms: float = 0.0  #: pool's latest launch, on the lanes' clock
    offset_s: float = 0.0  #: from the lanes' clock to the worker's
    tier: int = 0  #: our own, whose wake-ups a slot waits for
    #: by bucket, ms: calls that are due sooner weren't seen; None: all were
    least_ms: Mapping[int, float] | None = None

    def least_of(self, view: LaneView) -> float:
        """Returns the time, ms, that calls of a lane must have left to be taken here; 0: none."""
        if not self.least_ms or (view.stays and not self.pool.faster_stay):
            return 0.0
        return self.least_ms.get(view.bucket, 0.0)

    @classmethod
    def from_look(
        cls,
        look: LanesState,
        slot: str,
        slots: int,
        offset_s: float,
        least_ms: Mapping[int, float] | None = None,
    ) -> "Waiting":
        """Converts a look by `slot`, for calls that have at least `least_ms` left; `slots` is the
        launches at a time of one replica."""

        def _ours(ms: float) -> float:
            return ms / 1000 + offset_s if ms else -inf

        lanes = tuple(
            LaneView(
                lane.lane,
                lane_parts(lane.lane)[1],
                lane.rows,
                lane.units,
                _ours(lane.due_ms),
                lane.turn,
                lane.urgent,
            )
            for lane in look.lanes
        )
        own, replicas, busy, faster, stay = 0, look.replicas, look.busy, False, False
        watched = look.watcher != slot
        cheaper: tuple[CheaperTier, ...] = ()
        if look.tiers:
            worker = worker_of(slot)
            own = tier_of(worker, look.tiers)
            faster, stay = is_slower(worker, look.tiers), faster_stay(worker, look.tiers)
            tier = look.tiers[own]
            replicas = len(tier.workers)
            busy = {name: until for name, until in busy.items() if tier.has(name)}
            watched = watched and tier.has(look.watcher)
            cheaper = tuple(_cheaper(look, own, slots, offset_s))
        total = max(1, replicas) * slots
        others = sorted(busy.values())[-total + 1 :] if total > 1 else []
        idle = total - 1 - len(others)  # without the one that asks
        other_free_s = _ours(look.now_ms if idle > 0 else others[-idle]) if total > 1 else inf
        quiet_s = (look.now_ms - look.called_ms) / 1000
        pool = PoolView(
            last_launch_s=_ours(look.last_launch_ms),
            last_took_s=look.last_took_ms / 1000,
            slots=total,
            other_free_s=other_free_s,
            called_s=_ours(look.called_ms),
            gap_s=max(look.gap_ms / 1000, quiet_s) if look.gap_ms else inf,
            faster=faster,
            faster_stay=stay,
            cheaper=cheaper,
        )
        watched_s = _ours(look.watched_ms) if watched else -inf
        return cls(lanes, pool, watched_s, look.last_launch_ms, offset_s, own, least_ms)


def worker_of(slot: str) -> str:
    """Returns the worker of a slot ("worker/n")."""
    return slot.partition("/")[0]


def _cheaper(look: LanesState, own: int, slots: int, offset_s: float) -> Iterator[CheaperTier]:
    """Yields the tiers where a row costs less than in our own; of two that cost the same, the
    faster."""
    ours = look.tiers[own]
    for n, tier in enumerate(look.tiers):
        known = tier.launch_ms > 0 and ours.launch_ms > 0
        if known and (tier.row_cost, n) < (ours.row_cost, own):
            total = slots * len(tier.workers)
            busy = sorted(until for name, until in look.busy.items() if tier.has(name))
            free_ms = ([look.now_ms] * (total - len(busy)) + busy)[-total:]
            free_s = [until / 1000 + offset_s for until in free_ms]
            yield CheaperTier(tier.launch_ms / ours.launch_ms, free_s, n, tier.spot)


def merged(waiting: Waiting, items: dict[str, ItemsWaiting]) -> list[LaneView]:
    """Returns all lanes, with the calls and the items of each."""
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
    return replace(
        view,
        items=items.rows,
        items_units=items.units,
        items_since_s=items.since_s,
        items_turn=items.turn,
    )
