"""A pool of on-demand and spot replicas as a fluid, under the autoscaler: what it costs, and what
is late, while machines are reclaimed.

Work of calls that stay is done by on-demand replicas first, as the worker's lanes have it; where
there are none, by spot replicas. A reclaim with notice takes a replica out of the pool at once, and
the autoscaler sees it; one without is seen a lease later, and what the replica had in hand is late.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from jobs.scaling.policy import Policy
from jobs.scaling.signals import Signals
from jobs.scaling.spot import split
from ops.simulation.scaling.controllers import Autoscaler
from ops.simulation.scaling.fluid import DECIDES_S, Load, Pool

_SEEN_AFTER_S = 12.0  # two leases: a worker that falls silent counts as ready until then


@dataclass(frozen=True, slots=True)
class Market:
    """Spot machines: when they are reclaimed, and when there are none. Times in seconds."""

    life_s: float = 6 * 3600.0  #: mean, of one machine by itself
    wave_s: float = 8 * 3600.0  #: mean time between two waves, in which many go at once
    wave_share: float = 0.5  #: of the machines that a wave takes
    drought_s: float = 1200.0  #: after a wave, in which no machine is to be had
    unwarned: float = 0.5  #: share of reclaims without notice


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a replica, per hour."""

    price: float = 1.0  #: on demand
    spot_price: float = 0.35


@dataclass(slots=True)
class SpotRun:
    """Outcome of a load."""

    cost: float = 0.0  #: at the prices, replicas that boot included
    late: float = 0.0  #: share of the work, refused work included
    late_staying: float = 0.0  #: of the work of calls that stay
    reclaims: int = 0
    unwarned: int = 0  #: of these, without notice
    on_demand_s: float = 0.0  #: time of replicas
    spot_s: float = 0.0  #: time of replicas


def simulate(
    load: Load, policy: Policy, market: Market, prices: Prices, *, staying: float, seed: int
) -> SpotRun:
    """Returns the run of a load. staying: share of the work that spot replicas leave to others."""
    return _Simulation(load, policy, market, prices, staying, seed).run()


@dataclass(slots=True)
class _Replicas:
    """Replicas of one kind."""

    ready: int
    boots: list[float] = field(default_factory=list)  #: when each is ready

    @property
    def count(self) -> int:
        """Number, with those that boot."""
        return self.ready + len(self.boots)

    def pass_time(self, at_s: float) -> None:
        """Makes those ready that have booted."""
        self.ready += sum(until_s <= at_s for until_s in self.boots)
        self.boots = [until_s for until_s in self.boots if until_s > at_s]

    def bring_to(self, wanted: int, ready_s: float) -> None:
        """Starts or ends replicas; of those that end first the ones that boot."""
        self.boots += [ready_s] * (wanted - self.count)
        while self.count > wanted:
            if self.boots:
                self.boots.pop()
            else:
                self.ready -= 1


class _Simulation:
    """State of one run."""

    def __init__(
        self, load: Load, policy: Policy, market: Market, prices: Prices, staying: float, seed: int
    ) -> None:
        self._load, self._policy, self._market, self._prices = load, policy, market, prices
        self._staying_share, self._random = staying, Random(seed)
        first = policy.clamp(round(load.mean / policy.target_used) + 1)
        its = split(first, first, policy)
        self._stay, self._spot = _Replicas(its.on_demand), _Replicas(its.spot)
        self._controller = Autoscaler(policy, first)
        self._staying, self._others = (
            Pool(load.step_s, load.target_s, 0.0) for _ in range(2)
        )  # by the calls that they serve
        self._gone_unseen: list[float] = []  # until when each counts as ready
        self._wave_at_s, self._drought_until_s = self._next_wave(0.0), 0.0
        self._run, self._lost = SpotRun(), 0.0

    def run(self) -> SpotRun:
        """Plays all of it."""
        every = max(1, round(DECIDES_S / self._load.step_s))
        for n, work in enumerate(self._load.work):
            at_s = n * self._load.step_s
            for kind in (self._stay, self._spot):
                kind.pass_time(at_s)
            for _ in range(self._reclaims(at_s)):
                self._reclaim(at_s)
            self._work(work)
            self._pay()
            if n % every == 0:
                self._decide(at_s)
        return self._end()

    def _reclaims(self, at_s: float) -> int:
        """Returns how many machines go now, whether they boot or are ready."""
        if at_s >= self._wave_at_s:
            self._wave_at_s = self._next_wave(at_s)
            self._drought_until_s = at_s + self._market.drought_s
            return round(self._market.wave_share * self._spot.count)
        chance = self._spot.count * self._load.step_s / self._market.life_s
        return int(self._random.random() < chance)

    def _next_wave(self, at_s: float) -> float:
        return at_s + self._random.expovariate(1 / self._market.wave_s)

    def _reclaim(self, at_s: float) -> None:
        spot = self._spot
        self._run.reclaims += 1
        if self._random.randrange(spot.count) >= spot.ready:
            spot.boots.pop()
            return
        spot.ready -= 1
        if self._random.random() < self._market.unwarned:
            self._run.unwarned += 1
            self._gone_unseen.append(at_s + _SEEN_AFTER_S)
            self._lost += self._load.target_s  # what it had in hand, at the most

    def _work(self, work: float) -> None:
        """Passes one step: those that stay are served first."""
        step_s, total = self._load.step_s, self._stay.ready + self._spot.ready
        self._staying.ready = self._stay.ready or self._spot.ready
        self._staying.step(self._staying_share * work)
        self._others.ready = max(0.0, total - self._staying.latest / step_s)
        self._others.step((1 - self._staying_share) * work)

    def _pay(self) -> None:
        step_s = self._load.step_s
        self._run.on_demand_s += self._stay.count * step_s
        self._run.spot_s += self._spot.count * step_s

    def _decide(self, at_s: float) -> None:
        self._gone_unseen = [until_s for until_s in self._gone_unseen if until_s > at_s]
        unseen = len(self._gone_unseen)
        desired = self._controller.decide(self._signals(at_s, unseen), 0.0)
        its = split(desired, self._spot.count + unseen, self._policy)
        ready_s = at_s + self._policy.boot_s
        self._stay.bring_to(its.on_demand, ready_s)
        spot = its.spot if at_s >= self._drought_until_s else min(its.spot, self._spot.count)
        self._spot.bring_to(spot, ready_s)

    def _signals(self, at_s: float, unseen: int) -> Signals:
        ready = self._stay.ready + self._spot.ready + unseen
        boots = len(self._stay.boots) + len(self._spot.boots)
        one, other = (pool.signals(at_s, 0) for pool in (self._staying, self._others))
        offered = one.offered + other.offered
        refused = one.refused * one.offered + other.refused * other.offered
        return Signals(
            at_s, ready, boots, offered,
            queue=one.queue + other.queue, refused=refused / offered if offered else 0.0,
        )  # fmt: skip

    def _end(self) -> SpotRun:
        run, total = self._run, max(1e-9, sum(self._load.work))
        staying, others = sum(self._staying.refused), sum(self._others.refused)
        run.late = (staying + others + self._lost) / total
        run.late_staying = staying / max(1e-9, self._staying_share * total)
        run.cost = (
            run.on_demand_s * self._prices.price + run.spot_s * self._prices.spot_price
        ) / 3600
        return run


def cheaper(runs: Sequence[SpotRun], beside: Sequence[SpotRun]) -> float:
    """Returns the share by which runs cost less than others."""
    return 1 - sum(run.cost for run in runs) / sum(run.cost for run in beside)
