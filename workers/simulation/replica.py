"""One worker with its slots. Events do what threads do in `workers/device/model_host.py`: a slot
looks, lets the scheduler decide, takes, closes, runs, and delivers."""

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random

from jobs.calls.lanes import lane_parts
from jobs.calls.memory import MemoryLanes
from jobs.calls.tiers.look import TieredLook
from jobs.models.model import Model
from workers.device.launch_runner import priority_of
from workers.scheduler.entries import Entry, Launch
from workers.scheduler.policy import Flush, Wait
from workers.scheduler.scheduler import Scheduler
from workers.scheduler.snapshot import Waiting
from workers.simulation.costs import LaunchTimes, Overheads
from workers.simulation.device import Device
from workers.simulation.event_loop import BEGINS_S, EventLoop
from workers.simulation.gateway import Gateway
from workers.simulation.job import Job
from workers.simulation.result import LaunchEnd

LEASE_S = 6.0  # renewed three times within it
PART_S = 0.002  # of a launch that gives way
_MAX_WAIT_S = 3.0  # between two looks of an idle slot
_MIN_WAIT_S = 0.0005  # one round trip


class WakeupList:
    """Wakes the replica whose slot has waited for the longest: the lanes give one token for it, by
    tier."""

    def __init__(self, lanes: MemoryLanes) -> None:
        self._lanes = lanes
        self._waiting: list[Replica] = []

    def notify(self) -> None:
        """Wakes slots if the lanes gave a token."""
        while found := next(
            (one for one in self._waiting if one.tier in self._lanes.wakeups), None
        ):
            self._lanes.wakeups.discard(found.tier)
            self._waiting.remove(found)
            found.wake()

    def add(self, replica: "Replica") -> None:
        """Adds a replica whose slot waits."""
        self._waiting.append(replica)
        self.notify()

    def remove(self, replica: "Replica") -> None:
        """Removes a replica that was woken by something else."""
        self._waiting.remove(replica)


@dataclass
class Stage:
    """State that all replicas share."""

    model: Model
    loop: EventLoop
    lanes: MemoryLanes
    wakeups: WakeupList
    overheads: Overheads
    random: Random
    preempts: bool = False  #: True if items have slots of their own, which give way to calls
    alike: bool = False  #: True if no replica tells how fast it is
    launches: list[LaunchEnd] = field(default_factory=list)
    looks: int = 0  #: how often a slot looked at the lanes
    lost_tickets: int = 0  #: looks that lost their calls to a faster replica


class Replica:
    """Worker with one scheduler and several slots."""

    def __init__(
        self, number: int, times: LaunchTimes, stage: Stage, gateway: Gateway, job: Job | None
    ) -> None:
        self.number, self._idle = number, False
        self._times, self._looks = times, TieredLook(stage.lanes, str(number))
        self.scheduler = Scheduler(stage.model)
        self._stage, self._gateway, self._job = stage, gateway, job
        self._loop, self._lanes = stage.loop, stage.lanes
        self._step_s = stage.overheads.launch_s / 3
        self._slots = stage.model.limits.in_flight
        slots = self._slots + stage.preempts  # one more, for calls that overtake others
        self._free = deque(f"{number}/{n}" for n in range(slots))
        self._in_flight: list[Launch] = []  # without those of items in slots of their own
        self._item_slots = deque(f"{number}/{n}/items" for n in range(self._slots))
        part_s = PART_S if stage.preempts else None
        self._device = Device(stage.loop, self._slots, times.slowdown, part_s)
        self._deciding: str | None = None  # one slot at a time
        self._overtakes = False  # it may take calls that overtake launches in flight
        self._waits = 0  # counts waits: only the latest ends by its time

    def start(self) -> None:
        """Starts the replica warm, measured, and ready for calls."""
        sweep = self._times.sweep(self._stage.model, self._stage.random)
        self.scheduler.latency.seed(sweep)
        self._announce()
        self._top_up()
        self._next()
        self._next_items()

    @property
    def tier(self) -> int:
        """Tier of this replica, as it last saw it."""
        return self._looks.tier

    def wake(self) -> None:
        """Called when a call may be waiting."""
        self._idle = False
        self._look()

    def _announce(self) -> None:
        profile, speed = self.scheduler.profile().pack(), self.scheduler.speed(self._times.price)
        speed = None if self._stage.alike else speed
        self._lanes.announce(str(self.number), LEASE_S, profile=profile, speed=speed)
        self._loop.after(LEASE_S / 3, self._announce)

    # -- the life of a launch

    def _next(self) -> None:
        """Makes a free slot the one that decides."""
        if self._deciding is None and self._free:
            self._deciding = self._free.popleft()
            self._look()

    def _look(self) -> None:
        assert self._deciding is not None
        bulk = any(launch.bulk for launch in self._in_flight)
        self._overtakes = len(self._in_flight) >= self._slots
        if self._overtakes and not (self._stage.preempts and bulk):
            self._wait(inf)
            return
        self._stage.looks += 1
        slot = self._deciding
        look, least_ms = self._looks.look(slot, self.scheduler.least_ms)
        waiting = Waiting.from_look(look, slot, self._slots, 0.0, least_ms)
        self._loop.after(self._step_s, self._decide, waiting)

    def _decide(self, waiting: Waiting) -> None:
        now_s, alone = self._loop.now_s, self._stage.preempts
        decision = self.scheduler.decide(
            now_s, waiting, calls_alone=alone, overtakes=self._overtakes
        )
        if isinstance(decision, Flush):
            self._loop.after(self._step_s, self._close, decision, waiting)
        else:
            if decision.watch:
                assert self._deciding is not None
                self._lanes.watch(self._deciding, decision.until_s * 1000, decision.watch)
            self._wait(decision.until_s)

    def _wait(self, until_s: float) -> None:
        self._idle = True
        self._waits += 1
        if until_s < inf:  # else nothing waits, and a look would change nothing
            now_s = self._loop.now_s
            until_s = until_s if until_s > now_s else now_s + _MIN_WAIT_S
            self._loop.at(min(until_s, now_s + _MAX_WAIT_S), self._wait_is_over, self._waits)
        self._stage.wakeups.add(self)

    def _wait_is_over(self, wait: int) -> None:
        if self._idle and wait == self._waits:
            self._wake()

    def _wake(self) -> None:
        self._stage.wakeups.remove(self)
        self.wake()

    def _close(self, flush: Flush, waiting: Waiting) -> None:
        launch = self._launch(flush, waiting)
        if launch is None:
            if self._overtakes:
                self._wait(inf)
            else:
                self._look()
            return
        self._in_flight.append(launch)
        slot, self._deciding = self._deciding, None
        self._run(launch, slot or "")
        self._top_up()
        self._next()

    def _next_items(self) -> None:
        """Launches items in the slots of their own, which the device puts behind calls."""
        while self._stage.preempts and self._item_slots:
            decision = self.scheduler.decide(self._loop.now_s, Waiting())
            if isinstance(decision, Wait):
                if decision.until_s < inf:
                    until_s = max(decision.until_s, self._loop.now_s + _MIN_WAIT_S)
                    self._loop.at(until_s, self._next_items)
                return
            launch = self.scheduler.close(self._loop.now_s, decision, [], inf)
            if launch is None:
                return
            launch.background = True
            self._run(launch, self._item_slots.popleft())
            self._top_up()

    def _run(self, launch: Launch, slot: str) -> None:
        priority = priority_of(launch)
        took_s = self._times.draw_s(launch.work, self._stage.random)
        launch.started_s = self._loop.now_s
        self._device.start(priority, took_s, partial(self._ended, slot, launch))

    def _launch(self, flush: Flush, waiting: Waiting) -> Launch | None:
        """Returns None if another replica was faster, or nothing is left that is worth a launch."""
        now_s, view, calls = self._loop.now_s, flush.view, list[Entry]()
        if view.calls or self.scheduler.tells_pool(now_s, waiting):
            full = (one for one in self._in_flight if one.bulk)
            overtaken = {call.tenant for one in full for call in one.calls}
            ticket = self.scheduler.ticket(
                now_s,
                flush,
                waiting,
                str(self.number),
                self._deciding or "",
                LEASE_S,
                "none" if self._overtakes else "apart" if self._stage.preempts else "mixed",
                overtaken if self._overtakes else (),
            )
            taken = self._lanes.take(ticket)
            if taken is None:
                self._stage.lost_tickets += 1
                return None
            self._stage.wakeups.notify()
            calls = [
                Entry(call, 0, call.lane, lane_parts(call.lane)[1], call.size, None,
                      call.enqueued_ms / 1000, call.tenant)
                for call in taken
            ]  # fmt: skip
        due_s = min([view.calls_due_s, *(call.owner.deadline_ms / 1000 for call in calls)])
        fill = not self._stage.preempts and view.calls <= flush.rows
        return self.scheduler.close(now_s, flush, calls, due_s, fill=fill)

    def _ended(self, slot: str, launch: Launch, ran_s: float) -> None:
        now_s = self._loop.now_s
        launch.engine_s = ran_s
        started_s, sizes = now_s - ran_s - BEGINS_S, (len(launch.calls), len(launch.items))
        self._stage.launches.append(LaunchEnd(self.number, started_s, ran_s, *sizes, launch.reason))
        if not launch.background:
            self._in_flight.remove(launch)
        self.scheduler.ended(now_s, launch)
        self._gateway.answer(launch)
        free = self._freed_items if launch.background else self._freed
        self._loop.after(self._step_s, free, slot)

    def _freed_items(self, slot: str) -> None:
        self._item_slots.append(slot)
        self._next_items()

    def _freed(self, slot: str) -> None:
        self._free.append(slot)
        if self._overtakes and self._idle:
            self._wake()
        self._next()

    def _top_up(self) -> None:
        """Claims items; a new slice wakes a waiting slot."""
        if not (self._job and self._job.top_up(self.scheduler.items, self._loop.now_s)):
            return
        if self._idle and not self._stage.preempts:
            self._wake()
