"""Announced workers of one model and their slots, in memory. Times are ms on the lanes' clock."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import inf

from jobs.calls.lanes import ON_DEMAND, Terms, lane_parts, stays_on_demand
from jobs.calls.messages import Call
from jobs.calls.tiers.admission import in_time, mixed_wait_ms
from jobs.calls.tiers.tier import Speed, Tier, faster_stay, leaves_to_others, tiers_of
from jobs.states import INTERRUPTIBLE


class MemoryWorkers:
    """Workers that have announced themselves."""

    def __init__(self) -> None:
        self.ready, self.alive = dict[str, float](), dict[str, float]()  #: until when
        self.busy: dict[str, float] = {}  #: by slot, until when
        self.tiers: list[Tier] = []  #: of the ready workers, as of the latest announcement
        self._latest = b""
        self._profiles, self._speeds = dict[str, bytes](), dict[str, Speed]()

    def announce(
        self,
        now: float,
        worker: str,
        ttl_s: float,
        ready: bool,
        profile: bytes,
        speed: Speed | None,
    ) -> None:
        """Records an announcement."""
        until = now + ttl_s * 1000
        self.alive[worker], self.ready[worker] = until, until if ready else 0.0
        if profile:
            self._latest = self._profiles[worker] = profile
        if speed:
            self._speeds[worker] = speed
        if not (ready and ttl_s):
            for slot in [slot for slot in self.busy if slot.startswith(f"{worker}/")]:
                del self.busy[slot]
        its = [worker for worker, until in self.ready.items() if until > now]
        self.tiers = tiers_of({worker: self._speeds.get(worker) for worker in its})

    def count_ready(self, now: float) -> int:
        """Returns the number of ready workers."""
        return sum(until > now for until in self.ready.values())

    def profiles(self) -> list[bytes]:
        """Implements `CallLanes.profiles`."""
        latest = [max(tier.workers, key=lambda worker: self.ready[worker]) for tier in self.tiers]
        if latest:
            return [self._profiles.get(worker, b"") for worker in latest]
        return [self._latest] if self._latest else []

    def placed(self, call: Call, terms: Terms) -> Call:
        """Returns a call in the lane where it waits: in one of its own where it stays with workers
        that aren't spot, and both kinds are ready."""
        both = terms.others and len({tier.spot for tier in self.tiers}) == 2
        stays = both and call.job_class not in INTERRUPTIBLE
        return replace(call, lane=ON_DEMAND + call.lane) if stays else call

    def seen(
        self, slot: str, lanes: Iterable[str], least_ms: Mapping[int, float]
    ) -> Iterator[tuple[str, float]]:
        """Yields the lanes that a slot sees, with the time that calls must have left for that."""
        looks = slot.partition("/")[0], self.tiers
        leaves, last = leaves_to_others(*looks), not faster_stay(*looks)
        for lane in lanes:
            stays = stays_on_demand(lane)
            if not (stays and leaves):
                least = {} if stays and last else least_ms
                yield lane, least.get(lane_parts(lane)[1], -inf)

    def wait(
        self, now: float, terms: Terms, others_ms: float, rows: int, before: int, *, stays: bool
    ) -> tuple[float, bool]:
        """Returns the time (ms) until the launch of a new call, and whether its answer is late.

        others_ms: launches of other lanes that come before; rows, before: calls of its own lane,
        and those of them that come before it; stays: spot workers don't take it.
        """
        if terms.others and self.tiers:
            free_ms = [self._free_ms(now, terms.slots, tier) for tier in self.tiers]
            spot = [tier.spot for tier in self.tiers] if stays else ()
            late = not in_time(terms, free_ms, others_ms, rows, before, spot)
            return mixed_wait_ms(terms, free_ms, others_ms, before), late
        wait_ms = terms.wait_ms(self._free_ms(now, terms.slots), others_ms, before)
        return wait_ms, wait_ms + terms.launch_ms(rows, before) > terms.allowed_ms

    def _free_ms(self, now: float, slots_each: int, tier: Tier | None = None) -> list[float]:
        """Returns the predicted time until each slot, or each of a tier, is free, ascending."""
        slots = slots_each * (len(tier.workers) if tier else self.count_ready(now))
        ends = [end for slot, end in self.busy.items() if not tier or tier.has(slot)]
        busy = sorted(end - now for end in ends if end > now)
        return ([0.0] * (slots - len(busy)) + busy)[-slots:]
