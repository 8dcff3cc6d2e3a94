"""One model on one device: its lanes, its decisions, its launches.

The life of a launch is `ModelHost.run`. One thread per launch in flight runs it; a lock makes
them decide one at a time, so that the next launch is closed as late as possible.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from jobs import clock
from jobs.calls.lanes import lane_parts
from jobs.calls.messages import Call
from jobs.calls.profile import Profile
from jobs.models.model import Model
from jobs.telemetry.metrics import record
from jobs.telemetry.tracing.context import CURRENT
from workers.device import bisection
from workers.device.backpressure import Backpressure
from workers.device.call_puller import CallPuller
from workers.device.monitoring import launch_metrics, tracing
from workers.device.monitoring.failure_log import FailureLog
from workers.device.monitoring.tracing import LaunchTrace
from workers.device.monitoring.utilization import Utilization
from workers.device.monitoring.watchdog import LaunchDeadline
from workers.device.prepare import prepare
from workers.device.warmup import measure_launch_times
from workers.engines.protocol import Engine, Gated, InvalidInput, Metered, Room
from workers.items.in_flight import Ended, InFlightSlice
from workers.scheduler.entries import Entry, Launch
from workers.scheduler.policy import Flush, Wait
from workers.scheduler.scheduler import Scheduler
from workers.scheduler.snapshot import Waiting

_log = logging.getLogger(__name__)
_PIECE = 128  # items prepared at a time: the device starts with the first while others follow
CLAIMS_IN_HAND = 4  # of a slice's items: one runs, one waits, one is fetched, one is recorded
GUEST_CLAIMS = 2  # beside them: for whom what is in hand would keep waiting
_LONGEST_WAIT_S = 1.0  # an idle slot looks around at least this often


class ModelHost:
    """Serves one model. on_launch: is told of every launch that had items, and names it."""

    def __init__(
        self,
        model: Model,
        engine: Engine,
        calls: CallPuller,
        on_launch: Callable[[Model, Launch], int],
        progress: LaunchDeadline | None = None,
        busy: Utilization | None = None,
    ) -> None:
        self.model, self.engine = model, engine
        self._progress, self._busy = progress or LaunchDeadline(), busy or Utilization()
        self.scheduler = Scheduler(model)
        self._puller = calls
        self._on_launch = on_launch
        self.load_s = 0.0  # until it was warm, once that is known
        self.used_s = clock.monotonic()  # when it last launched something
        self.most_claims = CLAIMS_IN_HAND
        self.flow = Backpressure()
        self._failures = FailureLog()
        self._items = self.scheduler.items
        self._changed = threading.Condition()  # guards the scheduler and flags; says they changed
        self._in_hand = self._claims = self._in_flight = 0
        self._gate = engine if isinstance(engine, Gated) else None
        self._shut = False  # the gate was closed at the last look
        # Of each slot: until when its latest launch takes, and how long, as predicted.
        self._ends = {f"{calls.worker}/{n}": (0.0, 0.0) for n in range(model.limits.in_flight)}
        self._running: dict[str, Launch] = {}  # of each slot, what the engine has
        self._hearing: str | None = None  # the slot that listens to Redis
        self._alone = False  # what is in hand is suspect: no call rides with it
        self._rung = self._draining = self._stopping = False
        self._deciding = threading.Lock()
        self._replies = ThreadPoolExecutor(1, thread_name_prefix=f"replies-{model.name}")
        self._threads = [
            threading.Thread(
                target=self.run,
                args=(slot,),
                name=f"device-{model.name}-{n}",
                daemon=True,
            )
            for n, slot in enumerate(self._ends)
        ]

    # -- the device

    def run(self, slot: str) -> None:
        """The life of launches, one after the other."""
        while launch := self._next_launch(slot):
            trace = tracing.of(launch)
            CURRENT.set(trace.here if trace else None)
            launch.started_s = clock.monotonic()
            self._ends[slot] = launch.started_s + launch.predicted_s, launch.predicted_s
            batch = [entry.data for entry in launch.entries]
            run = partial(self._run_engine, len(launch.items), len(launch.calls))
            self._running[slot] = launch
            with self._busy.with_one_more():
                outputs = bisection.run(run, batch, launch.params, self._shrink)
            ended_s = clock.monotonic()
            del self._running[slot]
            launch.engine_s = ended_s - launch.started_s
            clean = not any(isinstance(output, BaseException) for output in outputs)
            with self._changed:
                self.scheduler.ended(ended_s, launch, clean=clean)
                self.flow.launched(len(launch.items), len(launch.calls))
                self.used_s = ended_s
                self._in_flight -= 1
                self._changed.notify_all()  # there may be room for another
                if self._shut:  # and it may show that there is
                    self._rung = True
                    self._wake()
            if not clean:
                self._failures.tell(self.model, launch, outputs)
            self._deliver(launch, _weighed(launch, outputs), trace)
            launch_metrics.launched(self.model, launch, self.scheduler.rules)
            CURRENT.set(None)

    def _run_engine(
        self, items: int, calls: int, batch: Sequence[Any], params: Mapping[str, Any]
    ) -> Sequence[Any]:
        with self._progress.within(self.model.limits.max_launch_s, items=items, calls=calls):
            return self.engine.run(batch, params)

    def _shrink(self, rows: int) -> None:
        _log.warning("%s: %d rows ran out of memory", self.model.key, rows)
        with self._changed:
            self.scheduler.shrink(rows)

    def _next_launch(self, slot: str) -> Launch | None:
        """Waits until a launch is due, and closes it; None: stop."""
        with self._deciding:
            while not self._stopping:
                self._rung = False
                room = self._room()
                self._shut = room.closed_s > 0
                if not self._shut and self._in_flight >= room.launches:
                    self._await_room(room)
                    continue
                waiting = self._puller.look(slot)
                with self._changed:
                    seen = len(self._items)
                    decision = self.scheduler.decide(
                        clock.monotonic(),
                        waiting,
                        draining=self._draining,
                        closed_s=room.closed_s,
                    )
                if isinstance(decision, Wait):
                    if decision.watch:
                        self._puller.watch(slot, decision, waiting)
                    self._wait(slot, decision, seen)
                elif launch := self._close(decision, waiting, slot, room):
                    return launch
        return None

    def _room(self) -> Room:
        return self._gate.room() if self._gate else Room(self.model.limits.in_flight)

    def _width(self, room: Room) -> int:
        """Launches among which the time of the device is shared out; 1 where it is all ours."""
        return max(1, room.launches) if self._gate else 1

    def _await_room(self, room: Room) -> None:
        """Until a launch has ended."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._rung or self._in_flight < room.launches, _LONGEST_WAIT_S
            )

    def _wait(self, slot: str, wait: Wait, seen: int) -> None:
        """Until that time, or until something arrived that the decision has not seen. An idle slot
        listens to Redis, where calls come from, but for one that watches: it knows when to look.
        What is here wakes it in either case."""
        timeout_s = min(wait.until_s - clock.monotonic(), _LONGEST_WAIT_S)
        with self._changed:
            if self._rung or len(self._items) != seen:
                return
            self._hearing = None if wait.watch else slot
        heard = not wait.watch and (timeout_s <= 0 or self._puller.wait_for_wakeup(slot, timeout_s))
        with self._changed:
            self._hearing = None
            if not heard:
                self._changed.wait_for(lambda: self._rung or len(self._items) != seen, timeout_s)

    def _wake(self) -> None:
        """Something changed here. Holds the lock."""
        self._changed.notify_all()
        if self._hearing is not None:
            self._puller.notify(self._hearing)
            self._hearing = None

    def _close(self, flush: Flush, waiting: Waiting, slot: str, room: Room) -> Launch | None:
        """Takes what the decision names: calls by ticket, items into the rows that they leave.
        None where another slot was faster."""
        view, calls = flush.view, list[Entry]()
        if view.calls and view.alone:
            # It may end this process: what was answered before is to be sent before.
            self._replies.submit(bool).result()
        if view.calls or self.scheduler.tells_pool(clock.monotonic(), waiting):
            puller = self._puller
            taker = puller.worker, slot, puller.lease_s
            ticket = self.scheduler.ticket(clock.monotonic(), flush, waiting, *taker)
            taken = puller.take(ticket, waiting)
            if taken is None:
                return None
            calls = self._entries(taken, lane_parts(view.lane)[0])
        due_s = min([view.calls_due_s, *(call.owner.deadline_ms / 1000 for call in calls)])
        with self._changed:
            fill = not (self._alone or room.closed_s) and view.calls <= flush.rows
            launch = self.scheduler.close(clock.monotonic(), flush, calls, due_s, fill=fill)
            if launch:
                self._in_flight += 1
                launch.width = self._width(room)
            return launch

    def _entries(self, calls: Sequence[Call], params: Mapping[str, Any]) -> list[Entry]:
        """Calls as entries; those that the model refuses are answered at once."""
        entries = []
        with self._progress.within(self.model.limits.max_launch_s, calls=len(calls)):
            made = prepare(self.model, self.engine, [call.input for call in calls], params)
        for call, entry in zip(calls, made, strict=True):
            arrived_s = call.enqueued_ms / 1000
            if isinstance(entry, InvalidInput):
                refused = Entry(call, 0, call.lane, 0, 0, None, arrived_s)
                launch = Launch(params, "pace", [refused], [], clock.monotonic())
                self._replies.submit(self._puller.reply, launch, [entry])
            else:
                entry.owner, entry.arrived_s, entry.tenant = call, arrived_s, call.tenant
                entries.append(entry)
        return entries

    def _deliver(self, launch: Launch, outputs: list[Any], trace: LaunchTrace | None) -> None:
        launch_id = None
        if launch.calls:
            self._replies.submit(self._reply, launch, outputs[: len(launch.calls)])
        if launch.items:
            launch_id = self._on_launch(self.model, launch)
            _end_items(launch, outputs[len(launch.calls) :], launch_id)
        if trace:
            self._replies.submit(
                trace.tell, self.model.key, self._puller.worker, outputs, launch_id
            )

    def _reply(self, launch: Launch, outputs: Sequence[Any]) -> None:
        self._puller.reply(launch, outputs)
        ended_s = launch.started_s + launch.engine_s
        record.postprocessed(self.model.key, clock.monotonic() - ended_s)

    @property
    def idle(self) -> bool:
        """Whether a slot has nothing to launch."""
        return self._hearing is not None

    # -- for the threads that hold slices

    def room(self) -> int:
        """Inputs that may be claimed now."""
        if self._room().closed_s:
            return 0
        with self._changed:
            most = self.model.limits.slice_items
            left = CLAIMS_IN_HAND * most - self._in_hand
            if self.flow.under_backpressure:
                return 0 if self._draining or self._claims else 1  # which is a slice
            closed = self._draining or self._claims >= self.most_claims
            return 0 if closed else max(0, min(most, left))

    def guest_room(self) -> int:
        """Inputs that may be claimed beside what is in hand, for whom that would keep waiting."""
        if self._room().closed_s:
            return 0
        with self._changed:
            closed = (
                self._draining or self._alone or self.flow.under_backpressure or not self._claims
            )
            if closed or self._claims >= self.most_claims + GUEST_CLAIMS:
                return 0
            return self.model.limits.max_batch

    def launch_ends(self) -> tuple[float, float]:
        """Until the first of the launches in flight ends, and how long it takes, both as predicted,
        s."""
        until_s, took_s = min(self._ends.values())
        return max(0.0, until_s - clock.monotonic()), took_s

    def item_ms(self) -> float:
        """Device time of an item in a full launch of what is known best, predicted."""
        with self._changed:
            return self.scheduler.item_ms() / self._width(self._room())

    def under_backpressure(self) -> bool:
        """Once a pulse: whether calls keep the device from what is in hand."""
        with self._changed:
            return self.flow.pulse(len(self._items))

    def busy(self) -> bool:
        """Whether any slice is in hand."""
        with self._changed:
            return self._claims > 0

    def enter(self, alone: bool = False) -> None:
        """A claim's slices come in hand; a thread stays with them until `leave`."""
        with self._changed:
            self._claims += 1
            self._alone = alone

    def leave(self) -> None:
        with self._changed:
            self._claims -= 1

    def hold(self, count: int) -> None:
        """So many inputs came in hand; negative: left it."""
        with self._changed:
            self._in_hand += count

    def submit(
        self,
        holding: InFlightSlice,
        seqs: Sequence[int],
        inputs: Sequence[Any],
        params: Mapping[str, Any],
        parts: Sequence[int] = (),
    ) -> None:
        """Prepares items of one slice and queues them. One that the model refuses ends at once.
        parts: of inputs that are of lists, their places there; empty: none is."""
        parts = parts or [0] * len(seqs)
        lease = holding.lease
        tenant, weight, place = lease.tenant, lease.weight, lease.place
        for since in range(0, len(seqs), _PIECE):
            piece = slice(since, since + _PIECE)
            with self._progress.within(self.model.limits.max_launch_s, items=1):
                made = prepare(self.model, self.engine, inputs[piece], params)
            refused = []
            entries = []
            for seq, part, entry in zip(seqs[piece], parts[piece], made, strict=True):
                if isinstance(entry, InvalidInput):
                    refused.append(Ended(seq, 0, 0.0, None, entry, part=part))
                else:
                    entry.owner, entry.seq, entry.part = holding, seq, part
                    entry.tenant, entry.weight, entry.place = tenant, weight, place
                    entries.append(entry)
            if refused:
                holding.end(refused)
            with self._changed:
                released = holding.released
                if not released:
                    self._items.put(entries)
                    self._wake()
            if released:
                holding.forget(len(entries))

    def release(self, holding: InFlightSlice) -> None:
        """Takes back what has not been launched of a slice."""
        with self._changed:
            holding.released = True
            dropped = self._items.drop(holding)
        holding.forget(dropped)

    # -- for who wants to know

    def launches(self) -> list[Launch]:
        """Those that the engine has now."""
        return list(self._running.values())

    def slots(self) -> int:
        """Launches that may be in flight now."""
        return self._room().launches

    def profile(self) -> Profile:
        """A gate that is closed is told of as a model that isn't ready for so long."""
        room = self._room()
        with self._changed:
            return self.scheduler.profile(
                room.closed_s or self.load_s, slots=room.launches if self._gate else 0
            )

    # -- for the worker

    @property
    def draining(self) -> bool:
        return self._draining

    def announce(self, *, ready: bool = True, alive: bool = True) -> None:
        """That it is there, and with which times."""
        ready = ready and not self._room().closed_s
        self._puller.announce(ready=ready, alive=alive, profile=self.profile())

    def warm_up(self) -> None:
        """So that the first call meets a warm, measured device."""
        self.scheduler.latency.seed(
            measure_launch_times(self.model, self.engine, self.scheduler.rules)
        )

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def drain(self) -> None:
        """From now on nothing waits for company, and nothing more is claimed."""
        with self._changed:
            self._draining = self._rung = True
            self._wake()

    def stop(self) -> None:
        """Ends after the launches in flight; their calls are answered."""
        with self._changed:
            self._stopping = self._rung = True
            self._wake()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._replies.shutdown()


def _weighed(launch: Launch, outputs: Sequence[Any]) -> list[Any]:
    """The outputs; those that were metered tell their entries' sizes."""
    plain = []
    for entry, output in zip(launch.entries, outputs, strict=True):
        if isinstance(output, Metered):
            entry.size, output = output.size, output.output
        plain.append(output)
    return plain


def _end_items(launch: Launch, outputs: Sequence[Any], launch_id: int) -> None:
    """Tells each slice of its items' ends, once a launch."""
    device_us = launch.device_us[len(launch.calls) :]
    ended: dict[InFlightSlice, list[Ended]] = {}
    for entry, output, us in zip(launch.items, outputs, device_us, strict=True):
        waited_ms = (launch.started_s - entry.arrived_s) * 1000
        its = ended.setdefault(entry.owner, [])
        seq, part = entry.seq, entry.part
        its.append(Ended(seq, entry.size, waited_ms, launch_id, output, us, part))
    for holding, its in ended.items():
        holding.end(its)
