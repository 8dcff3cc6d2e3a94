"""Serves one model on one device: decides, closes, runs and delivers its launches.

`ModelHost.run` is the life of a launch. One thread per launch in flight runs it; a lock makes them
decide one at a time, so that each launch is closed as late as possible.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from jobs import clock
from jobs.calls.lanes import Bulk, lane_parts
from jobs.calls.profile import Profile
from jobs.models.adapters import Adapter
from jobs.models.model import Model
from jobs.telemetry.tracing.context import CURRENT
from workers.device.adapters.inputs import LaunchInputs
from workers.device.call_puller import CallPuller
from workers.device.claim_capacity import ClaimCapacity
from workers.device.delivery import Delivery, OnLaunch
from workers.device.health import DeviceHealth
from workers.device.launch_runner import LaunchRunner
from workers.device.monitoring import launch_metrics, tracing
from workers.device.monitoring.failure_log import FailureLog
from workers.device.monitoring.rollout_records import RecordStreams
from workers.device.monitoring.utilization import Utilization
from workers.device.monitoring.watchdog import LaunchDeadline
from workers.device.warmup.measure import Measured, measure_launch_times
from workers.engines.preemption import Preemptible
from workers.engines.protocol import DeviceFailed, Engine, Gated, Room
from workers.items.in_flight import InFlightSlice
from workers.scheduler.entries import Entry, Launch
from workers.scheduler.policy import Flush, Wait
from workers.scheduler.scheduler import Scheduler
from workers.scheduler.snapshot import Waiting

_PREPARED_AT_ONCE = 128  # items: the device starts with the first while others are prepared
_NO_CALLS = Waiting()
_LONGEST_WAIT_S = 3.0  # a slot that waits for room or items looks again at least this often


class ModelHost:
    """Host of a model that runs in launches: one thread per slot, which is a launch in flight."""

    def __init__(
        self,
        model: Model,
        engine: Engine,
        calls: CallPuller,
        on_launch: OnLaunch,
        deadline: LaunchDeadline | None = None,
        utilization: Utilization | None = None,
        health: DeviceHealth | None = None,
        records: RecordStreams | None = None,
    ) -> None:
        self.model, self.engine = model, engine
        self.load_s, self.used_s = 0.0, clock.monotonic()
        self.scheduler = Scheduler(model)
        self._deadline, self._health = deadline or LaunchDeadline(), health or DeviceHealth()
        shared = self._deadline, utilization or Utilization(), self._health
        self._runner = LaunchRunner(model, engine, self.scheduler.latency, *shared, self._shrink)
        self._puller, self._failures = calls, FailureLog()
        self._delivery = Delivery(model, calls, on_launch, records or RecordStreams())
        self._items = self.scheduler.items
        shared_inputs = self.scheduler.rules, self._delivery, self._deadline
        self._inputs = LaunchInputs(model, engine, *shared_inputs)
        self.adapters = self._inputs.adapters
        self._changed = threading.Condition()  # guards scheduler, capacity and what is below
        self._gate = engine if isinstance(engine, Gated) else None
        slots = [f"{calls.worker}/{n}" for n in range(model.limits.in_flight)]
        #: Items have slots of their own, whose launches give way to those of calls.
        self._preempts = isinstance(engine, Preemptible) and engine.preemptible
        own = [f"{slot}/items" for slot in slots] if self._preempts else []
        more = [f"{calls.worker}/{len(slots)}"] if self._preempts else []
        self.capacity = ClaimCapacity(
            model.limits,
            own or slots,
            self._gate,
            self.scheduler,
            self._items.__len__,
            self._changed,
        )
        self._in_flight: list[Launch] = []  # without those of items in slots of their own
        #: Tenants of full launches in flight, while a slot waits for calls that overtake them.
        self._overtaken = set[str]()
        self._listening: str | None = None  # slot that is blocked on Redis
        self._woken = self._stopping = self._gate_closed = False
        self._deciding = threading.Lock()
        parked = [f"{calls.worker}/adapters"] if self._inputs.parks else []
        self._threads = [
            threading.Thread(
                target=self.run,
                args=(slot, closing),
                name=f"device-{model.name}-{slot.removeprefix(calls.worker)}",
                daemon=True,
            )
            for some, closing in (
                (slots + more, self._next_launch),
                (own, self._next_items),
                (parked, lambda slot: self._inputs.next_parked()),
            )
            for slot in some
        ]

    # -- the life of a launch

    def run(self, slot: str, close_next: Callable[[str], Launch | None]) -> None:
        """Runs launches on one slot, one after the other, until the host stops. close_next: waits
        for the next one."""
        while launch := close_next(slot):
            trace = tracing.trace_launch(launch)
            CURRENT.set(trace.context if trace else None)
            try:
                outputs, clean = self._run_launch(slot, launch)
            except DeviceFailed as failure:
                self._give_back(launch, failure)
                return
            self._end_launch(launch, clean)
            if not clean:
                self._failures.log(self.model, launch, outputs)
            self._delivery.deliver(launch, outputs, trace)
            launch_metrics.record_launch(self.model, launch, self.scheduler.rules)
            CURRENT.set(None)

    def _next_launch(self, slot: str) -> Launch | None:
        """Waits until a launch is due, and closes it. Returns None once the host stops."""
        with self._deciding:
            while not self._stopping and self._runner.device_answers():
                self._woken = False
                self._overtaken.clear()
                room = self.capacity.launch_room()
                self._gate_closed = room.closed_s > 0
                full = not self._gate_closed and len(self._in_flight) >= room.launches
                if full and not self._may_overtake(room):
                    self._await_room(room)
                    continue
                waiting = self._puller.look(slot, self.scheduler.least_ms)
                with self._changed:
                    seen = len(self._items)
                    decision = self.scheduler.decide(
                        clock.monotonic(),
                        waiting,
                        draining=self.capacity.draining,
                        closed_s=room.closed_s,
                        calls_alone=self._preempts,
                        overtakes=full,
                    )
                if isinstance(decision, Wait):
                    if decision.watch:
                        self._puller.watch(slot, decision, waiting)
                    self._wait(slot, decision, seen)
                elif launch := self._close(decision, waiting, slot, room, overtakes=full):
                    return launch
                elif full:
                    self._wait(slot, Wait(clock.monotonic() + _LONGEST_WAIT_S), seen)
        return None

    def _may_overtake(self, room: Room) -> bool:
        """Returns True if calls of tenants who have few of them may have one launch more, which a
        full one gives way to."""
        with self._changed:
            if self._preempts and len(self._in_flight) == room.launches:
                bulk = (launch.calls for launch in self._in_flight if launch.bulk)
                self._overtaken |= {call.tenant for calls in bulk for call in calls}
            return bool(self._overtaken)

    def _next_items(self, slot: str) -> Launch | None:
        """Waits until a launch of items is due, and closes it; it gives way to launches of calls.
        Returns None once the host stops."""
        with self._changed:
            while not self._stopping:
                now_s = clock.monotonic()
                decision = self.scheduler.decide(now_s, _NO_CALLS, draining=self.capacity.draining)
                if isinstance(decision, Wait):
                    self._changed.wait(min(decision.until_s - now_s, _LONGEST_WAIT_S))
                elif launch := self.scheduler.close(now_s, decision, [], inf):
                    launch.background = True
                    return launch
        return None

    def _close(
        self, flush: Flush, waiting: Waiting, slot: str, room: Room, *, overtakes: bool
    ) -> Launch | None:
        """Takes the calls that the decision names, by ticket, and items into the rows that are
        left. Returns None where another slot was faster, or only bulk waits, which overtakes
        nothing."""
        view, calls, token = flush.view, list[Entry](), 0
        if view.calls and view.alone:
            self._delivery.flush()  # the launch may end this process
        if view.calls or self.scheduler.tells_pool(clock.monotonic(), waiting):
            puller = self._puller
            taker = puller.worker, slot, puller.lease_s
            bulk: Bulk = "none" if overtakes else "apart" if self._preempts else "mixed"
            now_s, without = clock.monotonic(), self._overtaken if overtakes else ()
            ticket = self.scheduler.ticket(now_s, flush, waiting, *taker, bulk, without)
            taken = puller.take(ticket, waiting)
            if taken is None:
                return None
            token = puller.token
            calls = self._inputs.calls(taken, lane_parts(view.lane)[0], token)
        due_s = min([view.calls_due_s, *(call.owner.deadline_ms / 1000 for call in calls)])
        with self._changed:
            apart = self._preempts or self.capacity.isolated or room.closed_s
            fill = not apart and view.calls <= flush.rows
            launch = self.scheduler.close(clock.monotonic(), flush, calls, due_s, fill=fill)
            if launch:
                self._in_flight.append(launch)
                launch.width = self.capacity.sharing_launches(room)
                launch.token = token
            return launch

    def _run_launch(self, slot: str, launch: Launch) -> tuple[list[Any], bool]:
        ends = self.capacity.launch_ends
        if slot in ends:
            ends[slot] = clock.monotonic() + launch.predicted_s, launch.predicted_s
        return self._runner.run(slot, launch, isolated=self.capacity.isolated)

    def _shrink(self, rows: int) -> None:
        with self._changed:
            self.scheduler.shrink(rows)

    def _give_back(self, launch: Launch, failure: DeviceFailed) -> None:
        """Gives back the entries of a launch in which the device failed, and launches no more.

        Of the first that failed, slices stay with this worker, whose death makes them suspect, and
        calls run alone."""
        alone = launch.calls_alone or (len(launch.items) > 0 and self.capacity.isolated)
        first = self._health.report(failure, alone=alone)
        with self._changed:
            self._stopping = True
        self._end_launch(launch, False)
        for in_flight, inputs in Counter(entry.owner for entry in launch.items).items():
            in_flight.suspect = in_flight.suspect or first
            self.release(in_flight)
            in_flight.withdraw(inputs)
        if launch.calls and not (first and self._health.suspects_launch):
            self.announce(ready=False)
            self._puller.put_back(launch.token, alone=first)

    def _end_launch(self, launch: Launch, clean: bool) -> None:
        """Tells the scheduler how long a launch took, and makes room for the next."""
        with self._changed:
            self.used_s = launch.started_s + launch.engine_s
            self.scheduler.ended(self.used_s, launch, clean=clean)
            self.capacity.backpressure.count_launch(len(launch.items), len(launch.calls))
            if not launch.background:
                self._in_flight.remove(launch)
            self._changed.notify_all()  # there may be room for another launch
            if self._gate_closed or self._overtaken:  # the launch may have opened the gate
                self._woken = True
                self._wake()

    # -- waiting

    def _await_room(self, room: Room) -> None:
        """Waits until a launch has ended."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._woken or len(self._in_flight) < room.launches, _LONGEST_WAIT_S
            )

    def _wait(self, slot: str, wait: Wait, seen: int) -> None:
        """Waits until the decision's time, or until something arrives that it has not seen. An idle
        slot is blocked on Redis, where calls come from; one that watches lanes knows when to look.
        Items and flags of this process wake either."""
        timeout_s = min(wait.until_s - clock.monotonic(), self._puller.pace.idle_wait_s)
        shared = not self._preempts  # this slot launches items
        with self._changed:
            if self._woken or (shared and len(self._items) != seen):
                return
            self._listening = None if wait.watch else slot
        woken = not wait.watch and (timeout_s <= 0 or self._puller.wait_for_wakeup(slot, timeout_s))
        with self._changed:
            self._listening = None
            if not woken:
                self._changed.wait_for(
                    lambda: self._woken or (shared and len(self._items) != seen), timeout_s
                )

    def _wake(self) -> None:
        """Wakes the slot that decides; the caller holds the lock."""
        self._changed.notify_all()
        if self._listening is not None:
            self._puller.notify(self._listening)
            self._listening = None

    @property
    def idle(self) -> bool:
        """True while a slot has nothing to launch."""
        return self._listening is not None

    # -- items

    def submit(
        self,
        owners: Sequence[InFlightSlice],
        seqs: Sequence[int],
        inputs: Sequence[Any],
        params: Mapping[str, Any],
        parts: Sequence[int] = (),
        adapter: Adapter | None = None,
    ) -> None:
        """Implements `Host.submit`: prepares inputs of slices and queues them. One that the model
        rejects fails at once."""
        parts = parts or [0] * len(seqs)
        for since in range(0, len(seqs), _PREPARED_AT_ONCE):
            piece = slice(since, since + _PREPARED_AT_ONCE)
            named = owners[piece], seqs[piece], parts[piece]
            entries = self._inputs.items(*named, inputs[piece], params, adapter)
            with self._changed:
                released = [entry for entry in entries if entry.owner.released]
                if released:
                    entries = [entry for entry in entries if not entry.owner.released]
                self._items.put(entries)
                if self._preempts:
                    self._changed.notify_all()
                else:
                    self._wake()
            for in_flight, count in Counter(entry.owner for entry in released).items():
                in_flight.withdraw(count)

    def release(self, in_flight: InFlightSlice) -> None:
        """Takes back the items of a slice that have not been launched."""
        with self._changed:
            in_flight.released = True
            dropped = self._items.drop(in_flight)
        in_flight.withdraw(dropped)

    # -- state

    @property
    def draining(self) -> bool:
        """True once `drain` was called."""
        return self.capacity.draining

    @property
    def lanes_waiting(self) -> int:
        """Number of lanes with something in them, at the latest decision."""
        return self.scheduler.lanes_seen

    def launches(self) -> list[Launch]:
        """Returns the launches in flight."""
        return list(self._runner.running.values())

    def slots(self) -> int:
        """Returns the number of launches that may be in flight now."""
        return self.capacity.launch_room().launches

    def profile(self) -> Profile:
        """Returns how long launches take. A closed gate looks like a model that is loading."""
        room = self.capacity.launch_room()
        with self._changed:
            return self.scheduler.profile(
                room.closed_s or self.load_s, slots=room.launches if self._gate else 0
            )

    def announce(self, *, ready: bool = True, alive: bool = True) -> None:
        """Tells Redis that this worker serves the model, whether for calls, and its profile."""
        ready = ready and not self.capacity.launch_room().closed_s
        profile, price = self.profile(), self._puller.price
        with self._changed:
            speed = self.scheduler.speed(price)
        self._puller.announce(ready=ready, alive=alive, profile=profile, speed=speed)

    # -- start and end

    def warm_up(self, known: Measured | None = None) -> Measured:
        """Runs launches of the engine's samples, and returns their times; known: those of an
        earlier load, see `measure_launch_times`. Raises DeviceFailed."""
        measured = measure_launch_times(self.model, self.engine, self.scheduler.rules, known)
        self.scheduler.seed(measured)
        self._runner.probe.prepare()
        return measured

    def start(self) -> None:
        """Starts a thread for each slot."""
        for thread in self._threads:
            thread.start()

    def drain(self) -> None:
        """Launches what waits without delay, and offers no room any more."""
        with self._changed:
            self.capacity.draining = self._woken = True
            self._wake()

    def stop(self) -> None:
        """Returns once the launches in flight have ended and their calls are answered."""
        self._inputs.stop()
        with self._changed:
            self._stopping = self._woken = True
            self._wake()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._delivery.close()
