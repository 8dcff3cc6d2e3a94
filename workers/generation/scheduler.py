"""Scheduler of a generation host: which sequences are in the next step, and how many tokens of
prompts. It has neither thread nor clock.

KV blocks are what it admits by: a sequence has room while the blocks of its prompt and its expected
output fit beside those of all others. Calls go first: an item gives way to a call that finds no
room, or whose steps it makes longer than items may, and keeps its tokens.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from workers.engines.generator import Capacity, Generator, Step
from workers.engines.protocol import Gated, Room
from workers.generation.admission.occupancy import Occupancy
from workers.generation.admission.output_lengths import OutputLengths
from workers.generation.admission.prefill_turns import PrefillTurns, cut
from workers.generation.admission.shares import SharedRoom, shared_room
from workers.generation.admission.turns import Turns
from workers.generation.admission.waiting import Waiting
from workers.generation.requests import Sequenced
from workers.generation.step_time import StepTime

_LEAST_PREFILL = 32  # tokens a step: a prompt always goes on
_MOST_PREFILL = 2048
_LONGER = 3.0  # times the time between tokens: longest step without calls that have begun
_ITEMS_ALONE = 0.5  # times the time between tokens: step of items alone, for which a call waits
_WITH_PROMPTS = 2.0  # times a step without prompts: what a step of items may take in any case
_BESIDE = 1.12  # times a step of the calls alone: longest step with items beside them
_TOO_SLOW = 1.18  # the same, from which on items give way
_QUICK, _GROWTH = 0.7, 1.5  # of a step that leaves time: more is tried in the next one
_FIRST_PREFILL = 256  # before step times are known
_SMOOTHING = 0.1  # share of the latest call in the usual one


@dataclass(slots=True)
class Decision:
    """Changes before the next step."""

    prefill_tokens: int = 0  #: most tokens of prompts in the step
    prefills: list[Sequenced] = field(default_factory=list)  #: prompts, in the order of their turns
    preempted: list[Sequenced] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)  #: ids in the generator of those
    admitted: list[Sequenced] = field(default_factory=list)


class GenerationScheduler:
    """Sequences that wait and run. itl_s: time between tokens to keep for calls. fills: items may
    use all of it; otherwise they make steps of calls hardly longer. engine: asked for room where
    its places change with time."""

    def __init__(
        self,
        capacity: Capacity,
        itl_s: float,
        *,
        fills: bool = False,
        engine: Generator | Gated | None = None,
    ) -> None:
        self.capacity, self._itl_s, self._fills = capacity, itl_s, fills
        self._gate = engine if isinstance(engine, Gated) else None
        self.step_time, self.lengths, self.turns = StepTime(), OutputLengths(), Turns()
        self.calls = Waiting(self.turns)  #: that wait
        self.items = Waiting(self.turns)  #: that wait
        self.running: dict[Sequenced, None] = {}  #: in the order of their admission
        self._prefill_turns = PrefillTurns()
        self._prefills: list[Sequenced] = []  # of the step that runs
        self.preemptions = 0  #: since it began
        self._usual_blocks = 0.0  # reserved by a call, in the mean; 0: none came
        #: tokens of prompts that fit a step whatever is predicted, since nearly as many did: where
        #: all steps are alike, the fit can't tell one factor from another
        self._proven_prefill = 0

    # -- events

    def put(self, sequences: Iterable[Sequenced]) -> None:
        """Queues sequences."""
        for sequence in sequences:
            self.turns.join(sequence.request.tenant, sequence.request.weight)
            self._lane(sequence).put(sequence)
            if sequence.request.is_call:
                blocks = self._occupancy(()).reserved(sequence)
                usual = self._usual_blocks or blocks
                self._usual_blocks = usual + (blocks - usual) * _SMOOTHING

    def remove(self, sequence: Sequenced) -> None:
        """Forgets a sequence that has ended or was aborted, waiting or running."""
        if sequence in self.running:
            del self.running[sequence]
        else:
            self._lane(sequence).remove(sequence)
        self.turns.leave(sequence.request.tenant)
        if sequence.finish:
            self.lengths.add(len(sequence.emitted))

    def emitted(self, sequence: Sequenced, tokens: int) -> None:
        """Counts new tokens of a sequence."""
        sequence.to_prefill = 0
        self.turns.serve(sequence.request.tenant, output=tokens)

    def stepped(self, step: Step) -> None:
        """Learns from a step that has ended."""
        if step.sequences:
            self.step_time.observe(
                step.duration_s, step.prefill_tokens, step.sequences, step.kv_tokens
            )
        if left := step.prefill_tokens:
            quick = step.duration_s < _QUICK * self._longest_step_s()
            self._proven_prefill = int(_GROWTH * left) if quick else 0
        for sequence in self._prefills:
            computed = min(left, sequence.to_prefill)
            sequence.to_prefill -= computed
            self._prefill_turns.serve(sequence, computed)
            left -= computed

    def requeue(self, sequences: Iterable[Sequenced]) -> list[Sequenced]:
        """Returns running sequences that the generator has no more, and which are added again."""
        found = list(sequences)
        for sequence in found:
            sequence.to_prefill = sequence.tokens
            sequence.runs += 1
        return found

    # -- decision

    def decide(self) -> Decision:
        """Decides about the next step: who gives way, who is admitted, how much is prefilled."""
        decision, now, room = Decision(), self._occupancy(self.running), self.room()
        now.places = room.launches
        self._make_growth_fit(decision, now)
        if self._admit_calls(decision, now):
            self._keep_calls_quick(decision, now)
            most = room.launches if room.items is None else room.items
            self._admit_items(decision, now, most)
        self._prefills = decision.prefills = self._prefill_turns.order(self.running)
        if self.running:
            decision.prefill_tokens = cut(decision.prefills, self._prefill_tokens(now))
        return decision

    def _make_growth_fit(self, decision: Decision, now: Occupancy) -> None:
        """Preempts the latest sequences, items first, while the next tokens don't fit."""
        if not self.capacity.blocks:
            return
        while now.sequences > 1 and now.next_blocks > self.capacity.blocks:
            latest = now.latest_item() or next(reversed(self.running))
            self._preempt(latest, decision, now)

    def _admit_calls(self, decision: Decision, now: Occupancy) -> bool:
        """Admits calls in turn. Returns False if one has no room: none overtakes it but those of
        tenants that have fewer places than its own."""
        while call := self.calls.first():
            if not self._make_room(call, decision, now):
                self._admit_below(now.places_of(call), decision, now)
                return False
            self._admit(call, decision, now)
        return True

    def _admit_below(self, places: float, decision: Decision, now: Occupancy) -> None:
        """Admits the first calls of tenants with fewer places, by weight, that find room."""
        for call in self.calls.first_of_tenants() if places else ():
            if now.places_of(call) < places and self._make_room(call, decision, now):
                self._admit(call, decision, now)

    def _make_room(self, call: Sequenced, decision: Decision, now: Occupancy) -> bool:
        """Preempts as many items as a call needs, then calls of tenants with more places than its
        own; none where that is not enough, or where the generator can't go on with a sequence."""
        victims: list[Sequenced] = []
        while not now.fits(call):
            victim = now.latest_item() or now.latest_above_share(call)
            if not (victim and self.capacity.resumes):
                for one in reversed(victims):
                    now.add(one)
                return False
            now.remove(victim)
            victims.append(victim)
        for victim in victims:
            self._give_way(victim, decision)
        return True

    def _keep_calls_quick(self, decision: Decision, now: Occupancy) -> None:
        """Preempts the latest items while they make steps of calls too slow."""
        if not (self.capacity.resumes and now.calls.sequences and self.step_time.trusted):
            return
        if self._decode_s(now) <= self._beside_s(now, _TOO_SLOW):
            return
        while (item := now.latest_item()) and self._decode_s(now) > self._beside_s(now):
            if now.items.sequences == 1 and self._decode_s(now) <= self._itl_s:
                return  # one is always served
            self._preempt(item, decision, now)

    def _admit_items(self, decision: Decision, now: Occupancy, most: int) -> None:
        """Admits items into what is left, unless some just gave way. most: sequences that run."""
        while not decision.preempted and now.sequences < most and (item := self.items.first()):
            if not (now.fits(item) and self._in_time(item, now)):
                return
            self._admit(item, decision, now)

    def _in_time(self, item: Sequenced, now: Occupancy) -> bool:
        """Returns True if an item's prompt delays no call that may come by much, and if it leaves
        calls that run their time between tokens."""
        ahead = now.items.to_prefill
        if ahead and ahead + item.tokens > self._prefill_tokens(now):
            return False
        if not (now.calls.sequences and self.step_time.trusted):
            return True
        kv_tokens = now.kv_tokens + item.tokens
        step_s = self.step_time.predict_s(0, now.sequences + 1, kv_tokens)
        return step_s <= (self._beside_s(now) if now.items.sequences else self._itl_s)

    def _lane(self, sequence: Sequenced) -> Waiting:
        return self.calls if sequence.request.is_call else self.items

    def _admit(self, sequence: Sequenced, decision: Decision, now: Occupancy) -> None:
        self._lane(sequence).remove(sequence)
        if not sequence.runs and sequence.leads:  # choices share their prompt
            self.turns.serve(sequence.request.tenant, input=sequence.prompt.size)
        sequence.runs += 1
        sequence.to_prefill = sequence.tokens
        now.add(sequence)
        self.running[sequence] = None
        decision.admitted.append(sequence)

    def _preempt(self, sequence: Sequenced, decision: Decision, now: Occupancy) -> None:
        now.remove(sequence)
        self._give_way(sequence, decision)

    def _give_way(self, sequence: Sequenced, decision: Decision) -> None:
        del self.running[sequence]
        self._lane(sequence).put(sequence)
        if sequence in decision.admitted:  # a moment ago: the generator hasn't got it yet
            decision.admitted.remove(sequence)
            sequence.runs -= 1
            return
        sequence.request.preemptions += 1
        self.preemptions += 1
        decision.preempted.append(sequence)
        decision.aborted.append(sequence.id)

    # -- room

    def room(self) -> Room:
        """Returns the sequences that may run now."""
        return self._gate.room() if self._gate else Room(self.capacity.sequences)

    def _occupancy(self, running: Iterable[Sequenced]) -> Occupancy:
        return Occupancy(self.capacity, self.lengths, running)

    def call_room(self) -> int:
        """Returns the number of calls that could start now beside those that run or wait, by places
        and by the blocks of usual calls."""
        running = (one for one in self.running if one.request.is_call)
        calls = self._occupancy((*running, *self.calls)).calls
        room = self.room().launches - calls.sequences
        if calls.sequences and self.capacity.blocks and self._usual_blocks:
            free = self.capacity.blocks - calls.reserved
            room = min(room, int(free / self._usual_blocks))
        return max(0, room)

    def shared_room(self) -> SharedRoom:
        """Returns the places that calls of tenants with more than their share would give up."""
        if not self.capacity.resumes:
            return SharedRoom(0, ())
        return shared_room(self.running, self.calls)

    @property
    def places(self) -> int:
        """Usual calls that run at a time."""
        places = self.capacity.sequences
        if self.capacity.blocks and self._usual_blocks:
            places = min(places, int(self.capacity.blocks / self._usual_blocks))
        return max(1, places)

    # -- time

    def _decode_s(self, now: Occupancy) -> float:
        return self.step_time.predict_s(0, now.sequences, now.kv_tokens)

    def _beside_s(self, now: Occupancy, times: float = _BESIDE, prefill: int = 0) -> float:
        """Returns the longest step with items: within the time between tokens to keep, and little
        more than that of the calls alone, unless items may fill it."""
        calls = now.calls
        alone_s = self.step_time.predict_s(prefill, calls.sequences, calls.kv_tokens)
        return max(alone_s, self._itl_s if self._fills else min(times * alone_s, self._itl_s))

    def _prefill_tokens(self, now: Occupancy) -> int:
        """Returns the tokens of prompts for the next step: of calls as many as keep the time
        between tokens, of items beside them as many as a slightly longer step has room for."""
        most = self._prefill_budget(now)
        if not now.calls.sequences or not self.step_time.trusted:
            return most
        own = now.calls.to_prefill
        if any(one.request.is_call and not one.emitted for one in self.running):
            own += _LEAST_PREFILL  # it goes on, also where more is left of it than is known
        if own >= most:
            return most
        within_s = self._beside_s(now, prefill=own)
        fits = self.step_time.prefill_within(within_s, now.sequences, now.kv_tokens, most)
        return max(own, fits)

    def _prefill_budget(self, now: Occupancy) -> int:
        """Returns as many tokens of prompts as keep the time between tokens of calls that have
        begun; where none has, a few times as many: no call should wait long for a step's end."""
        if not self.step_time.trusted:
            return _FIRST_PREFILL
        within_s = self._longest_step_s()
        if now.items.sequences and not now.calls.sequences:
            within_s = max(_ITEMS_ALONE * self._itl_s, _WITH_PROMPTS * self._decode_s(now))
        fits = self.step_time.prefill_within(within_s, now.sequences, now.kv_tokens, _MOST_PREFILL)
        return min(_MOST_PREFILL, max(_LEAST_PREFILL, self._proven_prefill, fits))

    def _longest_step_s(self) -> float:
        calls = any(one.request.is_call and not one.to_prefill for one in self.running)
        return self._itl_s * (1 if calls else _LONGER)

    def first_token_s(self, tokens: int, tenant: str = "") -> float:
        """Returns the predicted time until the first token of a call that is admitted now, s, with
        a prompt of so many tokens: the rest of the step that runs, and those of the prompts. "": of
        a tenant without any prompt now."""
        now, prompts = self._occupancy(self.running), self._prompts()
        own = self.capacity.blocks  # a server has an order of its own: first come, first served
        ahead = self._prefill_turns.ahead(prompts, tokens, tenant) if own else sum(prompts.values())
        most = self._prefill_budget(now)
        steps = max(1, -(-(ahead + tokens) // most))
        each, calls = min(most, ahead + tokens), now.calls
        step_s = self.step_time.predict_s(each, calls.sequences + 1, calls.kv_tokens)
        if now.items.sequences:
            step_s *= _BESIDE
        return steps * step_s + (self._decode_s(now) if self.running else 0.0)

    def prefilling(self) -> Counter[str]:
        """Returns the tokens of prompts of calls that are to be computed, by tenant."""
        found = Counter[str]()
        for one, tokens in self._prompts().items():
            found[one.request.tenant] += tokens
        return found

    def _prompts(self) -> dict[Sequenced, int]:
        running = {one: one.to_prefill for one in self.running if one.request.is_call}
        prompts = running | {one: one.tokens for one in self.calls}
        return {one: left for one, left in prompts.items() if left}

    def sequence_s(self, sequences: int) -> float:
        """Returns the predicted time of a mean sequence among so many, s."""
        kv_tokens = int(sequences * self.lengths.mean)
        return self.lengths.mean * self.step_time.predict_s(0, sequences, kv_tokens)

    def room_in_s(self) -> float:
        """Returns the predicted time until one more call finds a place and blocks; 0: now. Items
        give way to it."""
        if self.call_room():
            return 0.0
        calls = [one for one in self.running if one.request.is_call]
        now, first, left = self._occupancy(calls), self.calls.first(), 0
        step_s = self._decode_s(self._occupancy(self.running))
        for call in sorted(calls, key=self._expected_left):
            left = self._expected_left(call)
            now.remove(call)
            if first is None or now.fits(first):
                break
        return step_s * left

    def _expected_left(self, sequence: Sequenced) -> int:
        count, most = len(sequence.emitted), sequence.sampling.max_tokens or 1
        return self.lengths.expected(count, most) - count
