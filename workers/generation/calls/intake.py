"""Intake of calls, on a thread of its own: looks where there is room, takes, prepares."""

import threading
from collections.abc import Callable, Sequence
from math import inf
from typing import Protocol, TypeAlias

import orjson

from jobs import clock
from jobs.calls.lanes import Ticket, lane_name, stays_on_demand
from jobs.calls.messages import Call
from jobs.calls.streams.log import CallLog
from jobs.models.inputs.prefix import prefix_digest
from jobs.models.model import Model
from workers.device.call_puller import CallPuller
from workers.generation.admission.shares import SharedRoom
from workers.generation.calls.tiers import CallTiers
from workers.scheduler.snapshot import Waiting

_FULL_S = 0.05  # between looks for room, where nobody tells of it
_LEAST_S = 0.001  # of a wait; none at all would have no end
_TELL_S = 0.25  # between announcements of how long there is no room
_AT_MOST_S = 3600.0  # that is announced
_FREE = 0.75  # share of the places
_NO_LANE = lane_name({}, 0)


Taken: TypeAlias = tuple[Call, CallLog]
"""Call, and what other workers have logged of it."""


class Room(Protocol):
    """Room of the host, for any thread."""

    def call_room(self) -> int:
        """Returns the number of calls that could start now."""
        ...

    @property
    def places(self) -> int:
        """Calls that run at a time where there is nothing else."""
        ...

    def shared_room(self) -> SharedRoom:
        """Returns the places that calls of tenants with more than their share would give up."""
        ...

    def busy_for_s(self, taken: int) -> float:
        """Returns the predicted time without room after so many calls are taken, s."""
        ...


class CallIntake:
    """Takes calls that have room, and hands them over.

    accept: gets the calls of one take, with logs; returns once they are prepared and queued."""

    def __init__(
        self,
        model: Model,
        puller: CallPuller,
        room: Room,
        tiers: CallTiers,
        accept: Callable[[Sequence[Taken]], None],
    ) -> None:
        self._puller, self._room, self._tiers, self._accept = puller, room, tiers, accept
        self._slot = f"{puller.worker}/0"
        self._tell_at_s = 0.0  # monotonic
        self._left_due_s = 0.0  # of the calls that were left to cheaper workers, Redis' clock
        self._stopping = threading.Event()
        self._freed = threading.Event()  # there may be room
        self._listening = False  # blocked on Redis without room
        self._thread = threading.Thread(target=self._run, name=f"calls-{model.name}", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def freed(self) -> None:
        """Tells it that calls have ended."""
        self._freed.set()
        if self._listening:
            self._puller.notify(self._slot)

    def stop(self) -> None:
        """Takes no more calls; returns once those that were taken are handed over."""
        self._stopping.set()
        self._freed.set()
        self._puller.notify(self._slot)
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if (room := self._room.call_room()) > 0:
                waiting = self._look()
                if not waiting.lanes:
                    self._wait()
                elif self._leave(waiting):
                    continue
                elif calls := self._take(waiting, room):
                    self._accept(calls)
                    self._hold_prefixes(calls)
            else:
                self._while_full()

    def _while_full(self) -> None:
        """Takes calls of tenants that others give up places to, or waits for room."""
        shared, waiting = self._room.shared_room(), None
        if shared.calls:
            waiting = self._look()
            if waiting.lanes and (calls := self._take(waiting, shared.calls, shared.above)):
                self._accept(calls)
                return
        pool_waits = bool(waiting and waiting.lanes and waiting.pool.slots > 1)
        self._tell_full(at_once=pool_waits)  # wakes another worker for what this one leaves
        if shared.calls and not pool_waits:
            self._listen()
        else:
            self._freed.wait(_FULL_S)
        self._freed.clear()

    def _hold_prefixes(self, calls: Sequence[Taken]) -> None:
        """Has calls that begin like these wake this worker first, while most of it is free: beyond,
        shorter steps on another worker save more than a prefill."""
        found = {
            prefix_digest(call.tenant, call.adapter, orjson.dumps(call.input)) for call, _ in calls
        }
        if digests := [digest for digest in found if digest]:
            held = self._room.call_room() >= _FREE * self._room.places
            self._puller.hold_prefixes(self._slot, digests, held=held)

    def _take(
        self, waiting: Waiting, room: int, without: tuple[str, ...] = ()
    ) -> Sequence[Taken] | None:
        """Takes calls of the lane whose tenants had least, the most urgent of two. Returns None
        where another worker was faster. without: tenants whose calls are left."""
        view = min(waiting.lanes, key=lambda view: (view.calls_turn, view.calls_due_s))
        rows = 1 if view.alone else min(room, view.calls)
        calls = self._puller.take(self._ticket(view.lane, rows, waiting, without), waiting)
        logs = self._puller.logs([call.id for call in calls]) if calls else None
        return list(zip(calls, logs, strict=True)) if calls and logs else None

    def _tell_full(self, *, at_once: bool) -> None:
        """Announces for how long there is no room: admission predicts by it."""
        if clock.monotonic() < self._tell_at_s and not at_once:
            return
        self._tell_at_s = clock.monotonic() + _TELL_S
        waiting = self._puller.look(self._slot)
        self._puller.take(self._ticket(_NO_LANE, 0, waiting), waiting)

    def _ticket(
        self, lane: str, rows: int, waiting: Waiting, without: tuple[str, ...] = ()
    ) -> Ticket:
        busy_s = min(self._room.busy_for_s(rows), _AT_MOST_S)
        taker = self._puller.worker, self._slot, self._puller.lease_s * 1000
        times = waiting.launched_ms, busy_s * 1000, 0.0
        least_ms = max((waiting.least_ms or {}).values(), default=0.0)
        if stays_on_demand(lane) and not waiting.pool.faster_stay:
            least_ms = 0.0
        return Ticket(
            lane, rows, 0, *times, "pace", *taker, sized=True, without=without, least_ms=least_ms
        )

    def _listen(self) -> None:
        """Waits for a call, or for room, for a moment."""
        self._listening = True
        heard = self._freed.is_set() or self._puller.wait_for_wakeup(self._slot, _FULL_S)
        self._listening = False
        if not heard:  # Redis is away
            self._freed.wait(_FULL_S)

    def _look(self) -> Waiting:
        return self._puller.look(self._slot, self._tiers.least_ms)

    def _leave(self, waiting: Waiting) -> bool:
        """Leaves what waits to cheaper workers, and waits until they have taken it or it would be
        too late here. Returns False where it is for this worker: also what they didn't take."""
        cheaper = self._tiers.cheaper(clock.monotonic(), waiting)
        due_s = round(min(view.calls_due_s for view in waiting.lanes) - waiting.offset_s, 3)
        if not cheaper or due_s == self._left_due_s:
            return False
        self._left_due_s = due_s
        for tier in cheaper:
            self._puller.ring(tier)  # it may have been this worker alone that was woken
        self._wait(min(cheaper.values()) - clock.monotonic())
        return True

    def _wait(self, most_s: float = inf) -> None:
        pace_s = min(self._puller.pace.idle_wait_s, max(_LEAST_S, most_s))
        if not self._puller.wait_for_wakeup(self._slot, pace_s):  # Redis is away
            self._stopping.wait(_FULL_S)
