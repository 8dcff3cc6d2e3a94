"""Serves one model that generates: decides at each step which sequences are in it.

`GenerationHost.run` is the life of a step. One thread runs it; calls are taken and prepared by
another (`CallIntake`), and Redis gets deltas and replies from a third (`Sender`).
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from jobs import clock
from jobs.calls.messages import Call, Reply
from jobs.calls.profile import Profile
from jobs.models.adapters import Adapter
from jobs.models.model import Model
from workers.device.call_puller import CallPuller
from workers.device.claim_capacity import ClaimCapacity
from workers.device.monitoring.rollout_records import RecordStreams
from workers.device.monitoring.utilization import Utilization
from workers.device.monitoring.watchdog import LaunchDeadline
from workers.device.warmup.measure import Measured
from workers.engines.generator import Generator, GeneratorDied, Step
from workers.engines.protocol import InvalidInput, Transient
from workers.generation.admission.adapters import LOOK_AGAIN_S, AdapterGate
from workers.generation.admission.shares import NO_ROOM, SharedRoom
from workers.generation.calls.calls import HostCalls
from workers.generation.calls.dropped import DroppedCalls
from workers.generation.calls.intake import CallIntake
from workers.generation.calls.sender import Sender
from workers.generation.calls.tiers import CallTiers
from workers.generation.delivery import Delivery
from workers.generation.isolation import Isolation, accuse
from workers.generation.items.checkpoints import Unsaved
from workers.generation.items.items import HostItems
from workers.generation.monitoring.recorder import Recorder
from workers.generation.monitoring.rollout_records import CallRecords
from workers.generation.prediction import ClaimSizes, profile
from workers.generation.preparation import prepare
from workers.generation.requests import Prompts, Request, Sequenced
from workers.generation.restarts import LAST_RESORT_S, Restarts
from workers.generation.scheduler import Decision, GenerationScheduler
from workers.generation.warmup import warm_up
from workers.items.in_flight import InFlightSlice
from workers.scheduler.entries import Launch

_log = logging.getLogger(__name__)
_IDLE_S = 3.0  # between two steps of an idle generator
_OTHERS_EVERY_S = 0.5  # between looks for another worker, of one that stops


class GenerationHost:
    """Host of a model whose engine is a generator."""

    def __init__(
        self,
        model: Model,
        engine: Generator,
        calls: CallPuller,
        deadline: LaunchDeadline | None = None,
        utilization: Utilization | None = None,
        records: RecordStreams | None = None,
    ) -> None:
        self.model, self.engine = model, engine
        self.load_s, self.used_s = 0.0, clock.monotonic()
        fills = model.target_itl_ms > 0
        itl_s = model.itl_target_ms / 1000
        self.scheduler = GenerationScheduler(engine.capacity, itl_s, fills=fills, engine=engine)
        self._deadline, self._puller = deadline or LaunchDeadline(), calls
        self._changed = threading.Condition()  # guards scheduler, capacity and what is below
        self.capacity = ClaimCapacity(
            model.limits,
            [f"{calls.worker}/0"],
            None,
            ClaimSizes(self.scheduler, model.limits.slice_items),
            lambda: len(self.scheduler.items),
            self._changed,
        )
        self._running: dict[str, Sequenced] = {}  # by id in the generator
        self._aborted: list[str] = []  # ids in the generator, of sequences that have ended
        self._gate = AdapterGate(engine, self.scheduler)
        self.adapters = self._gate.declared
        self.restarts = Restarts(model, engine, self._deadline)
        self._isolation = Isolation(resumes=engine.capacity.resumes)
        self._stopping = False
        self._closed_for_calls = False  # during a restart, where another worker takes them
        shared = engine, self._gate, self._changed, self._prepare, self._leave
        self._items = HostItems(self.scheduler, *shared)
        self._calls = HostCalls(*shared, self._end, lambda replies: self._sender.send([], replies))
        self._tiers = CallTiers(model, self.scheduler, self._changed)
        self._intake = CallIntake(model, calls, self, self._tiers, self._calls.accept)
        self._left = DroppedCalls(calls, model.name, self._calls.cancel)
        self._sender = Sender(calls, model.name, self._calls_ended, self._calls.lose)
        self._records = CallRecords(model, records or RecordStreams())
        self._recorder = Recorder(model, calls.worker, utilization)
        takes_over = engine.capacity.takes_over
        self._delivery = Delivery(model.key, self._sender, self._recorder, takes_over=takes_over)
        self._thread = threading.Thread(
            target=self.run, name=f"generation-{model.name}", daemon=True
        )

    # -- the life of a step

    def run(self) -> None:
        """Runs steps until the host stops and its calls have ended."""
        while self._wait_for_work():
            with self._changed:
                self._calls.before_step()
                decision = self.scheduler.decide()
                self._apply(decision)
                self._items.step_begins()
            step = self._step(decision)
            with self._changed:
                self._take_results(step, clock.monotonic())
                self._delivery.deliver()
                self._sender.put_back(self._calls.take_handed_over())
                self._items.step_ended()

    def _wait_for_work(self) -> bool:
        with self._changed:  # a step of nothing tells of a generator that died meanwhile
            self._changed.wait_for(
                lambda: self._busy or self._gate.waits or self._stopping, _IDLE_S
            )
            self._gate.load(clock.monotonic(), self._leave)
            if self._gate.waits and not self._busy:  # for a slot, which nobody uses
                self._changed.wait(LOOK_AGAIN_S)
            return self._busy if self._stopping else True

    @property
    def _busy(self) -> bool:
        scheduler = self.scheduler
        if self._stopping:
            return bool(self._calls.requests)
        waiting = scheduler.calls or scheduler.items or self._calls.ending or self._aborted
        return bool(scheduler.running or waiting or self._gate.loading)

    def _apply(self, decision: Decision) -> None:
        """Tells the generator which sequences leave and which come."""
        now_s = clock.monotonic()
        aborted, self._aborted = self._aborted + decision.aborted, []
        for id in aborted:
            self.engine.abort(id)
            self._running.pop(id, None)
        for sequence in decision.preempted:
            self._isolation.leave(sequence)
        for sequence in decision.admitted:
            request = sequence.request
            if not request.admitted_s:
                predicted_s = self.scheduler.first_token_s(0, request.tenant)
                request.admitted_s = now_s
                request.predicted_s = now_s - request.arrived_s + predicted_s
            self._isolation.put(sequence)
        leaving, coming = self._isolation.changes(self._running.values())
        for sequence in leaving:
            self.engine.abort(sequence.id)
            del self._running[sequence.id]
        self.scheduler.requeue(leaving)
        for sequence in coming:
            self._running[sequence.id] = sequence
            self.engine.add(sequence.as_new())

    def _step(self, decision: Decision) -> Step:
        """Runs a step; restarts a generator that died in it, and gives it back what it had."""
        calls = sum(one.request.is_call for one in self._running.values())
        limit_s, items = self.model.limits.max_launch_s + LAST_RESORT_S, len(self._running) - calls
        prefills = [one.id for one in decision.prefills]
        try:
            with self._recorder.busy(), self._deadline.within(limit_s, calls=calls, items=items):
                return self.engine.step(decision.prefill_tokens, prefills)
        except GeneratorDied as death:
            self._restart(death)
            return Step()

    def _take_results(self, step: Step, now_s: float) -> None:
        """Adds new tokens to their sequences, and ends those that have finished or failed."""
        self.scheduler.stepped(step)
        share_s = step.duration_s / max(1, step.sequences)
        for running in self._running.values():
            running.request.device_s += share_s
        for emitted in step.emitted:
            if not (sequence := self._running.get(emitted.id)):
                continue
            request = sequence.request
            if emitted.error is not None:
                self._end(request, now_s, emitted.error)
                continue
            request.first_s = request.first_s or now_s
            sequence.suspicion = 0
            if not sequence.emitted:  # later it finds its own blocks
                sequence.cached = emitted.cached
            sequence.emitted += emitted.tokens
            sequence.text.append(emitted.text)
            sequence.logprobs += emitted.logprobs
            self.scheduler.emitted(sequence, len(emitted.tokens))
            self._delivery.add(sequence, emitted, now_s)
            if emitted.finish:
                sequence.end(emitted)
                del self._running[emitted.id]
                self.scheduler.remove(sequence)
                self._gate.leave(sequence)
                if request.ended:
                    self._end(request, now_s)
        for loaded in step.adapters:
            self._recorder.adapter_loaded(loaded, self._gate.slots)
            for request in self._gate.loaded(loaded, now_s):
                self._end(request, now_s, loaded.error)
        self._recorder.stepped(step, self.scheduler, now_s)
        self.used_s = now_s

    def _end(self, request: Request, now_s: float, error: Any = None) -> None:
        """Ends a request, with its sequences that still wait or run. The caller holds the lock."""
        for sequence in request.sequences:
            if not sequence.finish:
                self._leave(sequence)
        self._calls.forget(request)
        self.capacity.backpressure.count_launch(not request.is_call, request.is_call)
        self._delivery.end(request, now_s, error)

    def _calls_ended(self, ends: Sequence[tuple[Call, Reply]]) -> None:
        self._intake.freed()
        self._records.add(ends)

    def _leave(self, sequence: Sequenced) -> None:
        """Takes a sequence that waits or runs out of the scheduler and, soon, the generator."""
        self._isolation.leave(sequence)
        if self._gate.leave(sequence):
            return  # it waited there
        if sequence in self.scheduler.running:
            self._aborted.append(sequence.id)
            self._running.pop(sequence.id, None)
        self.scheduler.remove(sequence)

    # -- death of the generator

    def _restart(self, death: GeneratorDied) -> None:
        """Starts the generator again and adds its sequences with what they had emitted, except one
        that is known to kill it, and calls that another worker can go on with at once."""
        _log.warning("the generator of %s died: %s", self.model.key, death)
        with self._changed:
            inside = list(self._running.values())
            if reason := accuse(death, inside):
                self._fail([reason], f"the engine dies of this request, also alone: {death}")
        self._give_up_calls(() if death.outside else {one.request for one in inside})
        while not (self.restarts.tried() or self._stopping):
            self._give_up_calls(())
            if self.restarts.too_many:
                with self._changed:
                    failed = [*self.scheduler.running, *self.scheduler.calls]
                    self._fail(failed, "the engine can't be started again")
        with self._changed:
            self._aborted.clear()
            self._running.clear()
            for sequence in self.scheduler.requeue(self.scheduler.running):
                self._isolation.put(sequence)
        if self._closed_for_calls:
            self._closed_for_calls = False
            self.announce()

    def _give_up_calls(self, accused: Collection[Request]) -> None:
        """Gives calls to another worker that is ready: a restart takes seconds. accused: of these
        the generator may have died."""
        if self._closed_for_calls or not self._puller.others_ready(announced=True):
            return
        self._closed_for_calls = True
        self.announce(ready=False)
        with self._changed:
            left = self._calls.hand_over()
        blamed = {one.take: one.owner.holder for one in left if one in accused}
        self._sender.put_back({one.take for one in left} - blamed.keys())
        if blamed:
            self._puller.give_up(blamed.values())

    def _fail(self, sequences: Sequence[Sequenced], why: str) -> None:
        for request in {one.request: None for one in sequences}:
            self._end(request, clock.monotonic(), Transient(why))
        self._delivery.deliver()

    # -- calls

    def call_room(self) -> int:
        """Returns the number of calls that could start now."""
        if self._closed_for_calls or self._calls.hands_over:
            return 0
        with self._changed:
            return max(0, self.scheduler.call_room() - self._gate.waiting_calls)

    @property
    def places(self) -> int:
        """Calls that run at a time where there is nothing else."""
        with self._changed:
            return self.scheduler.places

    def shared_room(self) -> SharedRoom:
        """Returns the places that calls of tenants with more than their share would give up."""
        with self._changed:
            closed = self._closed_for_calls or self._calls.hands_over
            return NO_ROOM if closed else self.scheduler.shared_room()

    def busy_for_s(self, taken: int) -> float:
        """Returns the predicted time without room after so many calls are taken, s."""
        with self._changed:
            if taken < self.scheduler.call_room():
                return 0.0
            return self.scheduler.room_in_s() or self.scheduler.sequence_s(taken)

    def _prepare(self, inputs: Sequence[Any]) -> list[Prompts | InvalidInput]:
        prepared = []
        for value in inputs:  # each has its time: grammars may take long to compile
            with self._deadline.within(self.model.limits.max_launch_s, items=1):
                prepared += prepare(self.engine, [value])
        return prepared

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
        """Implements `Host.submit`."""
        self._items.submit(owners, seqs, inputs, parts, adapter)

    def release(self, in_flight: InFlightSlice) -> None:
        """Takes back the items of a slice, those that run too, after the step that runs."""
        self._items.release(in_flight)

    def checkpoint(self, write: Callable[[Unsaved], None]) -> None:
        """Has what its items emitted since the last time written."""
        self._items.checkpoint(write)

    # -- state

    @property
    def draining(self) -> bool:
        """True once `drain` was called."""
        return self.capacity.draining

    @property
    def lanes_waiting(self) -> int:
        """Number of lanes with something in them: calls, and items."""
        return bool(self.scheduler.calls) + bool(self.scheduler.items)

    def launches(self) -> list[Launch]:
        """Returns none: steps are too short to be told of one by one."""
        return []

    def slots(self) -> int:
        """Returns 1: steps follow one another."""
        return 1

    def profile(self) -> Profile:
        """Returns the predicted time to the first token, and of a mean sequence, for admission."""
        with self._changed:
            return profile(self.scheduler, self.load_s)

    def announce(self, *, ready: bool = True, alive: bool = True) -> None:
        """Tells Redis that this worker serves the model, whether for calls, and its profile."""
        closed = self._closed_for_calls or self._stopping or self.scheduler.room().closed_s
        ready = ready and not closed
        profile, speed = self.profile(), self._tiers.speed(self._puller.price)
        self._puller.announce(ready=ready, alive=alive, profile=profile, speed=speed)
        if self.draining and not ready:
            self._calls.leave_to_others(ready=self._puller.others_ready())

    # -- start and end

    def warm_up(self, known: Measured | None = None) -> Measured:
        """Generates a few tokens, whose steps tell the scheduler how long they take."""
        warm_up(self.engine, self.scheduler.step_time)
        return known or []

    def start(self) -> None:
        """Starts the threads."""
        for thread in (self._sender, self._left, self._thread, self._intake):
            thread.start()

    def drain(self) -> None:
        """Offers no room for items any more, and leaves calls to other workers once it is announced
        and as long as one is ready; without one they are served here."""
        with self._changed:
            self.capacity.draining = True

    def stop(self) -> None:
        """Returns once the calls have ended, or are left to another worker that is ready; items
        that run are given up."""
        self._intake.stop()
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self.announce(ready=False)
        while self._thread.is_alive():
            self._calls.leave_to_others(ready=self._puller.others_ready())
            self._thread.join(_OTHERS_EVERY_S)
        self._left.stop()
        self._calls.close()
        self._sender.close()
