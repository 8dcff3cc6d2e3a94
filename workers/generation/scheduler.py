"""Scheduler of a generation host: which sequences are in the next step, and how many tokens of
prompts. It has neither thread nor clock.

KV blocks are what it admits by: a sequence has room while the blocks of its prompt and its expected
output fit beside those of all others. Calls go first; an item gives way to a call that finds no
room, and keeps its tokens.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from workers.engines.generator import Capacity, Step
from workers.generation.output_lengths import OutputLengths
from workers.generation.requests import Sequenced
from workers.generation.step_time import StepTime
from workers.generation.turns import Turns

_LEAST_PREFILL = 32  # tokens a step: a prompt always goes on
_MOST_PREFILL = 2048
_LONGER = 3.0  # times the time between tokens: longest step without calls that have begun
_QUICK, _GROWTH = 0.7, 1.5  # of a step that leaves time: more is tried in the next one
_FIRST_PREFILL = 256  # before step times are known


@dataclass(slots=True)
class Decision:
    """Changes before the next step."""

    prefill_tokens: int = 0  #: most tokens of prompts in the step
    preempted: list[Sequenced] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)  #: ids in the generator of those
    admitted: list[Sequenced] = field(default_factory=list)


class GenerationScheduler:
    """Sequences that wait and run. itl_s: time between tokens to keep for calls."""

    def __init__(self, capacity: Capacity, itl_s: float) -> None:
        self.capacity, self._itl_s = capacity, itl_s
        self.step_time, self.lengths, self.turns = StepTime(), OutputLengths(), Turns()
        self.calls: list[Sequenced] = []  #: that wait
        self.items: list[Sequenced] = []  #: that wait
        self.running: list[Sequenced] = []  #: in the order of their admission
        self.preemptions = 0  #: since it began
        #: tokens of prompts that fit a step whatever is predicted, since nearly as many did: where
        #: all steps are alike, the fit can't tell one factor from another
        self._proven_prefill = 0

    # -- events

    def put(self, sequences: Iterable[Sequenced]) -> None:
        """Queues sequences."""
        for sequence in sequences:
            self.turns.join(sequence.request.tenant, sequence.request.weight)
            self._lane(sequence).append(sequence)

    def remove(self, sequence: Sequenced) -> None:
        """Forgets a sequence that has ended or was aborted, waiting or running."""
        (self.running if sequence in self.running else self._lane(sequence)).remove(sequence)
        self.turns.leave(sequence.request.tenant)
        if sequence.finish:
            self.lengths.add(len(sequence.emitted))

    def emitted(self, sequence: Sequenced, tokens: int) -> None:
        """Counts new tokens of a sequence."""
        sequence.to_prefill = 0
        tenant = sequence.request.tenant
        if not sequence.charged:
            sequence.charged = True
            self.turns.serve(tenant, input=sequence.prompt.size)
        self.turns.serve(tenant, output=tokens)

    def stepped(self, step: Step) -> None:
        """Learns from a step that has ended."""
        if step.sequences:
            self.step_time.observe(
                step.duration_s, step.prefill_tokens, step.sequences, step.kv_tokens
            )
        if left := step.prefill_tokens:
            quick = step.duration_s < _QUICK * self._longest_step_s()
            self._proven_prefill = int(_GROWTH * left) if quick else 0
        for sequence in self.running:
            computed = min(left, sequence.to_prefill)
            sequence.to_prefill -= computed
            left -= computed

    def requeue(self) -> list[Sequenced]:
        """Returns the running sequences, which are added again after the generator's restart."""
        for sequence in self.running:
            sequence.to_prefill = sequence.tokens
        return list(self.running)

    # -- decision

    def decide(self) -> Decision:
        """Decides about the next step: who gives way, who is admitted, how much is prefilled."""
        decision = Decision()
        self._make_growth_fit(decision)
        if self._admit_calls(decision):
            self._admit_items(decision)
        decision.prefill_tokens = self._prefill_tokens()
        return decision

    def _make_growth_fit(self, decision: Decision) -> None:
        """Preempts the latest sequences, items first, while the next tokens don't fit."""
        while self.capacity.blocks and len(self.running) > 1:
            if sum(map(self._next_blocks, self.running)) <= self.capacity.blocks:
                return
            self._preempt(self._latest_item() or self.running[-1], decision)

    def _admit_calls(self, decision: Decision) -> bool:
        """Admits calls in turn. Returns False if one has no room: nothing overtakes it."""
        while call := self._next_of(self.calls):
            if not self._make_room(call, decision):
                return False
            self._admit(call, decision)
        return True

    def _admit_items(self, decision: Decision) -> None:
        """Admits items into what is left, while calls keep their time between tokens."""
        while len(self.running) < self.capacity.sequences and (item := self._next_of(self.items)):
            if item in decision.preempted or not (self._fits(item) and self._in_time(item)):
                return
            self._admit(item, decision)

    def _make_room(self, call: Sequenced, decision: Decision) -> bool:
        """Preempts as many items as a call needs; none where all of them are not enough, or where
        the generator can't go on with a sequence."""
        resumes = self.capacity.resumes
        items = [one for one in self.running if resumes and not one.request.is_call]
        if not self._fits(call, without=items):
            return False
        while not self._fits(call):
            self._preempt(items.pop(), decision)
        return True

    def _lane(self, sequence: Sequenced) -> list[Sequenced]:
        return self.calls if sequence.request.is_call else self.items

    def _next_of(self, waiting: Sequence[Sequenced]) -> Sequenced | None:
        """Returns the next sequence: the most urgent of the tenant with the least tokens."""
        if not waiting:
            return None
        [tenant, *_] = self.turns.ordered({one.request.tenant for one in waiting})
        its = (one for one in waiting if one.request.tenant == tenant)
        return min(its, key=lambda one: (one.request.deadline_s, one.request.place))

    def _admit(self, sequence: Sequenced, decision: Decision) -> None:
        self._lane(sequence).remove(sequence)
        self.running.append(sequence)
        sequence.runs += 1
        sequence.to_prefill = sequence.tokens
        decision.admitted.append(sequence)

    def _preempt(self, sequence: Sequenced, decision: Decision) -> None:
        self.running.remove(sequence)
        self._lane(sequence).append(sequence)
        sequence.request.preemptions += 1
        self.preemptions += 1
        decision.preempted.append(sequence)
        decision.aborted.append(sequence.id)

    def _latest_item(self) -> Sequenced | None:
        return next((one for one in reversed(self.running) if not one.request.is_call), None)

    # -- room

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.capacity.block_tokens)

    def _next_blocks(self, sequence: Sequenced) -> int:
        """Returns the blocks of a sequence after its next token."""
        return self._blocks(sequence.tokens + 1)

    def reserved_blocks(self, sequence: Sequenced) -> int:
        """Returns the blocks that a sequence is expected to need in the end."""
        most = sequence.sampling.max_tokens or 1
        output = self.lengths.expected(len(sequence.emitted), most)
        return self._blocks(sequence.prompt.size + output)

    def _fits(self, sequence: Sequenced, without: Iterable[Sequenced] = ()) -> bool:
        """Returns True if there is room for a sequence; alone one always has it."""
        gone = set(without)
        others = [one for one in self.running if one not in gone]
        if len(others) >= self.capacity.sequences:
            return False
        if not self.capacity.blocks or not others:
            return True
        needed = self.reserved_blocks(sequence) + sum(map(self.reserved_blocks, others))
        return needed <= self.capacity.blocks

    def _in_time(self, item: Sequenced) -> bool:
        """Returns True if an item's prompt delays no call that may come by much, and if calls that
        run keep their time between tokens."""
        ahead = sum(one.to_prefill for one in self.running if not one.request.is_call)
        if ahead and ahead + item.tokens > self._prefill_budget():
            return False
        if not self._calls_run or not self.step_time.trusted:
            return True
        kv_tokens = self.kv_tokens + item.tokens
        step_s = self.step_time.predict_s(0, len(self.running) + 1, kv_tokens)
        return step_s <= self._itl_s

    @property
    def _calls_run(self) -> bool:
        return any(one.request.is_call for one in self.running)

    @property
    def kv_tokens(self) -> int:
        """Tokens of the running sequences."""
        return sum(one.tokens for one in self.running)

    def call_room(self) -> int:
        """Returns the number of calls that could start now, by places; none while one waits."""
        calls = sum(one.request.is_call for one in self.running)
        if self.calls:
            return 0
        return max(0, self.capacity.sequences - calls)

    # -- time

    def _prefill_tokens(self) -> int:
        """Returns the tokens of prompts for the next step."""
        if not any(one.to_prefill for one in self.running):
            return 0
        return self._prefill_budget()

    def _prefill_budget(self) -> int:
        """Returns as many tokens of prompts as keep the time between tokens of calls that have
        begun; where none has, a few times as many: no call should wait long for a step's end."""
        if not self.step_time.trusted:
            return _FIRST_PREFILL
        read = sum(one.tokens for one in self.running if not one.to_prefill)
        fits = self.step_time.prefill_within(
            self._longest_step_s(), len(self.running), read, _MOST_PREFILL
        )
        return min(_MOST_PREFILL, max(_LEAST_PREFILL, self._proven_prefill, fits))

    def _longest_step_s(self) -> float:
        calls = any(one.request.is_call and not one.to_prefill for one in self.running)
        return self._itl_s * (1 if calls else _LONGER)

    def first_token_s(self, tokens: int) -> float:
        """Returns the predicted time until the first token of a call that is admitted now, s, with
        a prompt of so many tokens."""
        ahead = sum(one.to_prefill for one in self.running if one.request.is_call)
        sequences, most = len(self.running) + 1, self._prefill_budget()
        steps = -(-(ahead + tokens) // max(1, most))
        each = min(most, ahead + tokens)
        return max(1, steps) * self.step_time.predict_s(each, sequences, self.kv_tokens)

    def sequence_s(self, sequences: int) -> float:
        """Returns the predicted time of a mean sequence among so many, s."""
        kv_tokens = int(sequences * self.lengths.mean)
        return self.lengths.mean * self.step_time.predict_s(0, sequences, kv_tokens)

    def room_in_s(self) -> float:
        """Returns the predicted time until a call finds a place and blocks; 0: now."""
        if self.call_room():
            return 0.0
        calls = [one for one in self.running if one.request.is_call]
        step_s = self.step_time.predict_s(0, len(self.running), self.kv_tokens)
        left = (self._expected_left(one) for one in calls)
        return step_s * min(left, default=0)

    def _expected_left(self, sequence: Sequenced) -> int:
        count, most = len(sequence.emitted), sequence.sampling.max_tokens or 1
        return self.lengths.expected(count, most) - count
