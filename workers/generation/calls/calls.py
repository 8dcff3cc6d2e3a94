"""Calls of a generation host: queued, dropped by their clients, lost or left to another worker."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from jobs import clock
from jobs.calls.lanes import ALONE, TOO_LATE
from jobs.calls.messages import Call, Reply
from jobs.calls.streams.log import CallLog
from workers.engines.generator import Generator
from workers.engines.protocol import InvalidInput
from workers.generation.admission.adapters import AdapterGate
from workers.generation.calls.intake import Taken
from workers.generation.calls.resumption import CANNOT_RESUME, resume
from workers.generation.calls.tokens import CANCELLED, TokenCalls
from workers.generation.isolation import SUSPECT
from workers.generation.preparation import call_requests, prompt_of
from workers.generation.requests import Prompts, Request, Sequenced, sequences_of


class HostCalls:
    """Calls of one host. Public methods are for any thread, unless the caller holds the lock.

    changed: the lock of the host. prepare: returns the prompts of inputs. leave: takes a sequence
    out of the generator and the scheduler. end: ends a request, with an error or None. reply:
    replies to calls that generate nothing."""

    def __init__(
        self,
        engine: Generator,
        gate: AdapterGate,
        changed: threading.Condition,
        prepare: Callable[[Sequence[Any]], Sequence[Prompts | InvalidInput]],
        leave: Callable[[Sequenced], None],
        end: Callable[[Request, float, Any], None],
        reply: Callable[[Sequence[tuple[Call, Reply]]], None],
    ) -> None:
        self._engine, self._gate, self._changed = engine, gate, changed
        self._prepare, self._leave, self._end, self._reply = prepare, leave, end, reply
        self._tokens = TokenCalls(engine, reply)
        self.requests: dict[str, Request] = {}  #: by id
        self.ending: list[tuple[Request, Any]] = []  #: before the next step, with an error or None
        self._dropped_early = set[str]()  # since the latest calls were queued
        self.hands_over = False  #: those that come, too, are left to another worker
        self._handed_over = set[int]()  # takes, to be put back once what they emitted is logged

    def accept(self, taken: Sequence[Taken]) -> None:
        """Prepares and queues calls that were taken; those without a text to come end at once."""
        if not (taken := self._tokens.take_out(taken)):
            return
        calls, logs = zip(*taken, strict=True)
        prepared = self._prepare(list(map(prompt_of, calls)))
        requests, replies = call_requests(calls, prepared, self._gate.declared)
        if replies:
            self._reply(replies)
        by_id = {call.id: log for call, log in zip(calls, logs, strict=True)}
        with self._changed:
            for request in requests:
                self._queue(request, by_id[request.id])
            early = [one for one in requests if one.id in self._dropped_early]
            self.ending += [(request, CANCELLED) for request in early]
            self._dropped_early.clear()
            self._changed.notify_all()

    def _queue(self, request: Request, log: CallLog) -> None:
        """Queues a call, which goes on from its log."""
        capacity = self._engine.capacity
        if earlier := self.requests.get(request.id):
            self._end(
                earlier, clock.monotonic(), CANCELLED
            )  # this worker was taken for dead meanwhile
        self.requests[request.id] = request
        request.sequences += sequences_of(request, capacity.context_tokens)
        resume(request, log)
        if request.owner.lane.startswith(ALONE):
            for sequence in request.unfinished:
                sequence.suspicion = SUSPECT
        self._gate.put(request.unfinished, clock.monotonic())
        if request.ended:
            self.ending.append((request, None))
        elif log.deltas and not capacity.takes_over:
            self.ending.append((request, CANNOT_RESUME))

    def close(self) -> None:
        """Returns once calls that generate nothing have their replies."""
        self._tokens.close()

    def forget(self, request: Request) -> None:
        """Forgets a call that has ended. The caller holds the lock."""
        if self.requests.get(request.id) is request:
            del self.requests[request.id]

    def cancel(self, ids: Sequence[str]) -> None:
        """Ends calls that were dropped before the next step, those too that are being prepared."""
        self._tokens.cancel(ids)
        with self._changed:
            found = [one for id in ids if (one := self.requests.get(id))]
            self.ending += [(request, CANCELLED) for request in found]
            self._dropped_early.update(ids)
            self._changed.notify_all()

    def lose(self, calls: Sequence[Call]) -> None:
        """Ends calls that this worker has no more before the next step; it may have got one of them
        again."""
        with self._changed:
            for call in calls:
                request = self.requests.get(call.id)
                if request and request.owner.holder == call.holder:
                    self.ending.append((request, CANCELLED))
            self._changed.notify_all()

    def leave_to_others(self, *, ready: bool) -> None:
        """Hands calls over before the next step, while another worker is ready for them."""
        with self._changed:
            self.hands_over = ready

    def take_handed_over(self) -> set[int]:
        """Returns the takes whose calls were handed over since the last time. The caller holds the
        lock."""
        takes, self._handed_over = self._handed_over, set()
        return takes

    def before_step(self) -> None:
        """Ends calls that are to end or overdue, and hands over. The caller holds the lock."""
        if self.hands_over:
            self._handed_over |= {one.take for one in self.hand_over()}
        now_s = clock.monotonic()
        ending, self.ending = self.ending, []
        for request, error in ending:
            if self.requests.get(request.id) is request:
                self._end(request, now_s, error)
        for request in [one for one in self.requests.values() if one.deadline_s <= now_s]:
            self._end(request, now_s, TOO_LATE)

    def hand_over(self) -> Sequence[Request]:
        """Takes all calls out, but those of a take of which no other generator can go on with one;
        returns them. The caller holds the lock."""
        calls, takes_over = list(self.requests.values()), self._engine.capacity.takes_over
        begun = {one.take for one in calls if one.deltas and not takes_over}
        leaving = [one for one in calls if one.take not in begun]
        for request in leaving:
            for sequence in request.unfinished:
                self._leave(sequence)
            self.forget(request)
        return leaving
