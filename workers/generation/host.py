"""Serves one model that generates: decides at each step which sequences are in it.

`GenerationHost.run` is the life of a step. One thread runs it; calls are taken and prepared by
another (`CallIntake`), and Redis gets deltas and replies from a third (`Sender`).
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from jobs import clock
from jobs.calls.lanes import TOO_LATE
from jobs.calls.messages import Call
from jobs.calls.profile import Profile
from jobs.models.model import Model
from workers.device.call_puller import CallPuller
from workers.device.claim_capacity import ClaimCapacity
from workers.device.monitoring.utilization import Utilization
from workers.device.monitoring.watchdog import LaunchDeadline
from workers.device.warmup import Measured
from workers.engines.generator import Generator, GeneratorDied, Step
from workers.engines.protocol import InvalidInput, Transient
from workers.generation.admission.shares import SharedRoom
from workers.generation.call_intake import CallIntake
from workers.generation.delivery import Delivery, rejected
from workers.generation.monitoring.recorder import Recorder
from workers.generation.prediction import item_ms, profile, slice_items
from workers.generation.preparation import call_requests, item_request, prepare, prompt_of
from workers.generation.requests import Prompts, Request, Sequenced, sequences_of
from workers.generation.scheduler import Decision, GenerationScheduler
from workers.generation.sender import Sender
from workers.generation.warmup import warm_up
from workers.items.in_flight import InFlightSlice
from workers.scheduler.entries import Launch

_log = logging.getLogger(__name__)
#: after a generator's own limits: the supervisor kills a worker that can't end a hanging one
_LAST_RESORT_S = 20.0
_DEATHS = 4  # in a row, after which what runs fails
_BACKOFF_S = 0.1  # before the second restart in a row; doubled for each one more
_PREPARED_AT_ONCE = 64  # items: the first start while others are prepared
_CANCELLED = ("cancelled", "its client left")


class GenerationHost:
    """Host of a model whose engine is a generator."""

    def __init__(
        self,
        model: Model,
        engine: Generator,
        calls: CallPuller,
        deadline: LaunchDeadline | None = None,
        utilization: Utilization | None = None,
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
            lambda: item_ms(self.scheduler),
            lambda launches: slice_items(self.scheduler, model.limits.slice_items),
            lambda: len(self.scheduler.items),
            self._changed,
        )
        self._running: dict[str, Sequenced] = {}  # by id in the generator
        self._requests: dict[str, Request] = {}  # calls, by id
        self._dropped: list[Request] = []  # to end before the next step
        self._dropped_early = set[str]()  # calls, since the latest ones were queued
        self._aborted: list[str] = []  # ids in the generator, of sequences that have ended
        self._deaths = 0  # in a row
        self._stopping = False
        self._intake = CallIntake(model, calls, self, self._accept)
        self._sender = Sender(calls, model.name, self._cancel, self._intake.freed)
        self._recorder = Recorder(model, calls.worker, utilization)
        self._delivery = Delivery(model.key, self._sender, self._recorder)
        self._thread = threading.Thread(
            target=self.run, name=f"generation-{model.name}", daemon=True
        )

    # -- the life of a step

    def run(self) -> None:
        """Runs steps until the host stops and its calls have ended."""
        while self._wait_for_work():
            with self._changed:
                self._end_dropped()
                self._end_overdue(clock.monotonic())
                decision = self.scheduler.decide()
                self._apply(decision)
            step = self._step(decision.prefill_tokens)
            with self._changed:
                calls = bool(self._requests)
                self._take_results(step, clock.monotonic())
                self._delivery.deliver(calls=calls)

    def _wait_for_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._busy or self._stopping)
            return self._busy if self._stopping else True

    @property
    def _busy(self) -> bool:
        scheduler = self.scheduler
        if self._stopping:
            return bool(self._requests)
        waiting = scheduler.calls or scheduler.items or self._dropped or self._aborted
        return bool(scheduler.running or waiting)

    def _apply(self, decision: Decision) -> None:
        """Tells the generator which sequences leave and which come."""
        now_s = clock.monotonic()
        aborted, self._aborted = self._aborted + decision.aborted, []
        for id in aborted:
            self.engine.abort(id)
            self._running.pop(id, None)
        for sequence in decision.admitted:
            request = sequence.request
            if not request.admitted_s:
                predicted_s = self.scheduler.first_token_s(0)
                request.admitted_s = now_s
                request.predicted_s = now_s - request.arrived_s + predicted_s
            self._add(sequence)

    def _add(self, sequence: Sequenced) -> None:
        self._running[sequence.id] = sequence
        self.engine.add(sequence.as_new())

    def _step(self, prefill_tokens: int) -> Step:
        """Runs a step; restarts a generator that died in it, and gives it back what it had."""
        running = list(self._running.values())
        calls = sum(one.request.is_call for one in running)
        limit_s, items = self.model.limits.max_launch_s + _LAST_RESORT_S, len(running) - calls
        try:
            with self._recorder.busy(), self._deadline.within(limit_s, calls=calls, items=items):
                step = self.engine.step(prefill_tokens)
        except GeneratorDied as death:
            self._restart(death)
            return Step()
        if step.emitted:
            self._deaths = 0
        return step

    def _take_results(self, step: Step, now_s: float) -> None:
        """Adds new tokens to their sequences, and ends those that have finished or failed."""
        self.scheduler.stepped(step)
        share_s = step.duration_s / max(1, step.sequences)
        for running in self.scheduler.running:
            running.request.device_s += share_s
        for emitted in step.emitted:
            if not (sequence := self._running.get(emitted.id)):
                continue
            request = sequence.request
            if emitted.error is not None:
                self._end(request, now_s, emitted.error)
                continue
            request.first_s = request.first_s or now_s
            sequence.cached = sequence.cached or emitted.cached
            sequence.emitted += emitted.tokens
            sequence.text.append(emitted.text)
            sequence.logprobs += emitted.logprobs
            self.scheduler.emitted(sequence, len(emitted.tokens))
            self._delivery.add(sequence, emitted, now_s)
            if emitted.finish:
                sequence.end(emitted)
                del self._running[emitted.id]
                self.scheduler.remove(sequence)
                if request.ended:
                    self._end(request, now_s)
        self._recorder.stepped(step, self.scheduler, now_s)
        self.used_s = now_s

    def _end(self, request: Request, now_s: float, error: Any = None) -> None:
        """Ends a request, with its sequences that still wait or run. The caller holds the lock."""
        for sequence in request.sequences:
            if not sequence.finish:
                if sequence in self.scheduler.running:
                    self._aborted.append(sequence.id)
                    self._running.pop(sequence.id, None)
                self.scheduler.remove(sequence)
        self._requests.pop(request.id, None)
        self.capacity.backpressure.count_launch(not request.is_call, request.is_call)
        self._delivery.end(request, now_s, error)

    def _end_dropped(self) -> None:
        """Ends calls whose clients left, and takes back items of slices that were released."""
        now_s = clock.monotonic()
        dropped, self._dropped = self._dropped, []
        for request in dropped:
            if request.id in self._requests:
                self._end(request, now_s, _CANCELLED)

    def _end_overdue(self, now_s: float) -> None:
        for request in [one for one in self._requests.values() if one.deadline_s <= now_s]:
            self._end(request, now_s, TOO_LATE)

    # -- death of the generator

    def _restart(self, death: GeneratorDied) -> None:
        """Starts the generator again and adds its sequences with what they had emitted. After a
        few deaths in a row they fail: one of them may be the reason."""
        self._deaths += 1
        _log.warning("the generator of %s died: %s", self.model.key, death)
        if self._deaths >= _DEATHS:
            self._fail_all(Transient(f"the engine died {self._deaths} times in a row: {death}"))
        while not (self._restarted() or self._stopping):
            self._deaths += 1
            if self._deaths >= _DEATHS:
                self._fail_all(Transient("the engine can't be started again"))
            clock.sleep(_BACKOFF_S * 2 ** min(self._deaths, 6))
        with self._changed:
            self._aborted.clear()
            self._running.clear()
            for sequence in self.scheduler.requeue():
                sequence.runs += 1
                self._add(sequence)

    def _restarted(self) -> bool:
        try:
            limit_s = self.model.limits.max_load_s + _LAST_RESORT_S
            with self._deadline.within(limit_s, items=1):
                self.engine.restart()
        except Exception:
            _log.exception("the generator of %s doesn't start", self.model.key)
            return False
        return True

    def _fail_all(self, error: Exception) -> None:
        now_s = clock.monotonic()
        with self._changed:
            failed = [*self.scheduler.running, *self.scheduler.calls]
            for request in {one.request: None for one in failed}:
                self._end(request, now_s, error)
            self._delivery.deliver(calls=True)

    # -- calls

    def call_room(self) -> int:
        """Returns the number of calls that could start now."""
        with self._changed:
            return self.scheduler.call_room()

    def shared_room(self) -> SharedRoom:
        """Returns the places that calls of tenants with more than their share would give up."""
        with self._changed:
            return self.scheduler.shared_room()

    def busy_for_s(self, taken: int) -> float:
        """Returns the predicted time without room after so many calls are taken, s."""
        with self._changed:
            if taken < self.scheduler.call_room():
                return 0.0
            return self.scheduler.room_in_s() or self.scheduler.sequence_s(taken)

    def _accept(self, calls: Sequence[Call]) -> None:
        """Prepares and queues calls that were taken; those without a text to come end at once."""
        prepared = self._prepare(list(map(prompt_of, calls)))
        requests, replies = call_requests(calls, prepared)
        if replies:
            self._sender.send([], replies)
        with self._changed:
            for request in requests:
                self._requests[request.id] = request
                self._queue(request)
            self._dropped += [one for one in requests if one.id in self._dropped_early]
            self._dropped_early.clear()
            self._changed.notify_all()

    def _cancel(self, ids: Sequence[str]) -> None:
        """Ends calls that were dropped before the next step, those too that are being prepared."""
        with self._changed:
            self._dropped += [one for id in ids if (one := self._requests.get(id))]
            self._dropped_early.update(ids)
            self._changed.notify_all()

    def _queue(self, request: Request) -> None:
        seed = clock.random_bits(62)
        request.sequences += sequences_of(request, self.engine.capacity.context_tokens, seed)
        self.scheduler.put(request.sequences)

    def _prepare(self, inputs: Sequence[Any]) -> list[Prompts | InvalidInput]:
        with self._deadline.within(self.model.limits.max_launch_s, items=1):
            return prepare(self.engine, inputs)

    # -- items

    def submit(
        self,
        owners: Sequence[InFlightSlice],
        seqs: Sequence[int],
        inputs: Sequence[Any],
        params: Mapping[str, Any],
        parts: Sequence[int] = (),
    ) -> None:
        """Implements `Host.submit`."""
        parts = parts or [0] * len(seqs)
        for since in range(0, len(seqs), _PREPARED_AT_ONCE):
            piece = slice(since, since + _PREPARED_AT_ONCE)
            prepared = self._prepare(inputs[piece])
            named = list(zip(owners[piece], seqs[piece], parts[piece], prepared, strict=True))
            refused = [one for one in named if isinstance(one[3], InvalidInput)]
            if refused:
                rejected(*zip(*refused, strict=True))
            with self._changed:
                for owner, seq, part, prompts in named:
                    if not isinstance(prompts, InvalidInput):
                        self._queue_item(owner, seq, part, prompts)
                self._changed.notify_all()

    def _queue_item(self, owner: InFlightSlice, seq: int, part: int, prompts: Prompts) -> None:
        if owner.released:
            owner.withdraw(1)
            return
        self._queue(item_request(owner, seq, part, prompts))

    def release(self, in_flight: InFlightSlice) -> None:
        """Takes back the items of a slice that have not ended, those that run too: they may take
        long, and their job may have ended."""
        with self._changed:
            in_flight.released = True
            scheduler = self.scheduler
            its = [
                s for s in (*scheduler.items, *scheduler.running) if s.request.owner is in_flight
            ]
            requests = {sequence.request for sequence in its}
            for sequence in its:
                if sequence in scheduler.running:
                    self._aborted.append(sequence.id)
                    self._running.pop(sequence.id, None)
                scheduler.remove(sequence)
            self._changed.notify_all()
        in_flight.withdraw(len(requests))

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
        ready = ready and not self.scheduler.room().closed_s
        self._puller.announce(ready=ready, alive=alive, profile=self.profile())

    # -- start and end

    def warm_up(self, known: Measured | None = None) -> Measured:
        """Generates a few tokens, whose steps tell the scheduler how long they take."""
        warm_up(self.engine, self.scheduler.step_time)
        return known or []

    def start(self) -> None:
        """Starts the threads."""
        for starts in (self._sender.start, self._thread.start, self._intake.start):
            starts()

    def drain(self) -> None:
        """Offers no room for items any more; calls that come are served until `stop`."""
        with self._changed:
            self.capacity.draining = True

    def stop(self) -> None:
        """Returns once the calls have ended; items that run are given up."""
        self._intake.stop()
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        self._sender.close()
