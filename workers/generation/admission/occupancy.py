"""Places, KV blocks and tokens of the sequences that run: sums, kept while a decision is made."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from workers.engines.generator import Capacity
from workers.generation.admission.output_lengths import OutputLengths
from workers.generation.requests import Request, Sequenced


@dataclass(slots=True)
class Load:
    """Sums over the calls, or over the items."""

    sequences: int = 0
    reserved: int = 0  #: KV blocks that they are expected to need in the end
    next_blocks: int = 0  #: KV blocks after their next token
    kv_tokens: int = 0  #: tokens so far, prompts and outputs
    to_prefill: int = 0  #: tokens of prompts to compute


class Occupancy:
    """Sequences that run. The choices of one request share the full blocks of its prompt: those
    count once, with its first choice."""

    def __init__(
        self, capacity: Capacity, lengths: OutputLengths, running: Iterable[Sequenced] = ()
    ) -> None:
        self._capacity, self._lengths = capacity, lengths
        self.places = capacity.sequences  #: sequences that may run now
        self.calls, self.items = Load(), Load()
        self._choices = Counter[tuple[Request, int]]()
        self._latest_items: list[Sequenced] = []
        self._calls: dict[str, list[Sequenced]] = {}  # by tenant
        for sequence in running:
            self.add(sequence)

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return self.calls.sequences + self.items.sequences

    @property
    def next_blocks(self) -> int:
        """KV blocks after the next token of each."""
        return self.calls.next_blocks + self.items.next_blocks

    @property
    def kv_tokens(self) -> int:
        """Tokens of all."""
        return self.calls.kv_tokens + self.items.kv_tokens

    def add(self, sequence: Sequenced) -> None:
        """Counts a sequence that runs from now on."""
        request = sequence.request
        self._count(sequence, 1, self._shared(sequence))
        self._choices[request, sequence.prompt_number] += 1
        self._lane(sequence).append(sequence)

    def remove(self, sequence: Sequenced) -> None:
        """Counts a sequence out."""
        request = sequence.request
        self._choices[request, sequence.prompt_number] -= 1
        self._count(sequence, -1, self._shared(sequence))
        self._lane(sequence).remove(sequence)

    def latest_item(self) -> Sequenced | None:
        """Returns the item that was admitted last."""
        return self._latest_items[-1] if self._latest_items else None

    def latest_above_share(self, call: Sequenced) -> Sequenced | None:
        """Returns the latest call of the tenant with the most places by weight, if it would still
        have as many as the tenant of a new call then has."""
        own = call.request
        most = max((its for its in self._calls.values() if its), key=_by_weight, default=[])
        if not most or most[0].request.tenant == own.tenant:
            return None
        after = (len(self._calls.get(own.tenant, ())) + 1) / own.weight
        return most[-1] if (len(most) - 1) / most[0].request.weight >= after else None

    def places_of(self, call: Sequenced) -> float:
        """Returns the places of calls that the tenant of a call has, by weight."""
        return len(self._calls.get(call.request.tenant, ())) / call.request.weight

    def _lane(self, sequence: Sequenced) -> list[Sequenced]:
        request = sequence.request
        if request.is_call:
            return self._calls.setdefault(request.tenant, [])
        return self._latest_items

    def fits(self, sequence: Sequenced, *, items: bool = True) -> bool:
        """Returns True if there is room for a sequence beside the calls and, unless they give way,
        the items; alone one always has it."""
        others, reserved = self.calls.sequences, self.calls.reserved
        if items:
            others, reserved = others + self.items.sequences, reserved + self.items.reserved
        if others >= self.places:
            return False
        if not self._capacity.blocks or not others:
            return True
        own = self.reserved(sequence) - self._shared(sequence)
        return reserved + own <= self._capacity.blocks

    def reserved(self, sequence: Sequenced) -> int:
        """Returns the KV blocks that a sequence is expected to need in the end, alone."""
        most = sequence.sampling.max_tokens or 1
        output = self._lengths.expected(len(sequence.emitted), most)
        return self._blocks(sequence.prompt.size + output)

    def _shared(self, sequence: Sequenced) -> int:
        """Returns the blocks that one more choice of a prompt has in common with those here."""
        if not self._choices[sequence.request, sequence.prompt_number]:
            return 0
        return (sequence.prompt.size - 1) // self._capacity.block_tokens

    def _count(self, sequence: Sequenced, sign: int, shared: int) -> None:
        load = self.calls if sequence.request.is_call else self.items
        tokens = sequence.tokens
        load.sequences += sign
        load.reserved += sign * (self.reserved(sequence) - shared)
        load.next_blocks += sign * (self._blocks(tokens + 1) - shared)
        load.kv_tokens += sign * tokens
        load.to_prefill += sign * sequence.to_prefill

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._capacity.block_tokens)


def _by_weight(calls: Sequence[Sequenced]) -> float:
    return len(calls) / calls[0].request.weight
