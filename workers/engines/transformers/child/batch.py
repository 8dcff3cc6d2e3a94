"""Continuous batch: which tokens of which sequences a step computes, and what becomes of them."""

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TYPE_CHECKING, Any, Protocol

from jobs import clock
from jobs.models.adapters import Adapter
from workers.engines.generator import Capacity, Emitted, NewSequence, Step, TokenLogprob
from workers.engines.protocol import InvalidInput, Permanent, Transient
from workers.engines.transformers.child.blocks import BlockPool
from workers.engines.transformers.child.sequences import Choice, Chunk, LiveSequence
from workers.engines.transformers.child.text import TokenBytes
from workers.engines.transformers.structured.matching import Grammars

if TYPE_CHECKING:
    from llguidance import LLMatcher

_COMPILATION_WAIT_S = 0.05  # of a step that has nothing to compute but grammars to wait for
_SCORED_BYTES = 128 << 20  # of the logits of prompts' tokens in a step


class Network(Protocol):
    """Model with its KV cache."""

    vocabulary: int  #: token ids are below it

    def next_tokens(self, chunks: Sequence[Chunk]) -> Sequence[Choice]:
        """Computes the chunks; returns a choice for each that completes its sequence, in order, and
        adds to the `scores` of sequences that have some."""
        ...

    def clear(self, blocks: Sequence[int]) -> None:
        """Overwrites what blocks hold."""
        ...

    def slot(self, adapter: Adapter) -> int | None:
        """Returns the slot of an adapter; None where it isn't loaded."""
        ...


class Batch:
    """Sequences of one model, in the order in which they were added.

    Those that are `first` have precedence for prefill and blocks, then the older ones, after which
    come prompts in the order of the step's `prefills`. Where blocks run out, the last of this order
    gives its own back and is computed again later; the host prevents it where it counts free
    blocks.
    """

    def __init__(
        self,
        network: Network,
        tokenizer: Any,
        ends: frozenset[int],
        capacity: Capacity,
        grammars: Grammars,
    ) -> None:
        self._network, self._tokenizer, self._ends = network, tokenizer, ends
        self._capacity, self._grammars = capacity, grammars
        self._pool = BlockPool(capacity.blocks)
        self._bytes = TokenBytes(tokenizer)
        self._live: dict[str, LiveSequence] = {}
        self._compiling: dict[str, Future[LLMatcher]] = {}  # grammars of sequences that wait
        self._refused: list[Emitted] = []
        self._turns: dict[str, int] = {}  # of prompts in the step that runs, by id

    def add(self, new: NewSequence) -> None:
        """Adds a sequence. The next step reports one that the model can't serve."""
        slot = self._network.slot(new.adapter) if new.adapter else None
        if problem := self._problem(new):
            self._refused.append(Emitted(new.id, error=InvalidInput(problem)))
        elif new.adapter and slot is None:
            error = Transient("its adapter is not loaded any more")
            self._refused.append(Emitted(new.id, error=error))
        else:
            sequence = LiveSequence(new, self._tokenizer, self._ends)
            sequence.slot = slot
            self._live[new.id] = sequence
            if new.prompt.grammar:
                self._compiling[new.id] = self._grammars.compile(new.prompt.grammar)

    def abort(self, id: str) -> None:
        """Removes a sequence, if it is there."""
        self._compiling.pop(id, None)
        if sequence := self._live.pop(id, None):
            self._pool.release(sequence.reset())

    def step(self, max_prefill_tokens: int, prefills: Sequence[str] = ()) -> Step:
        """Implements `Generator.step`."""
        began_s = clock.monotonic()
        self._take_compiled()
        self._turns = {id: turn for turn, id in enumerate(prefills)}
        emitted, self._refused = self._refused, []
        chunks = self._schedule(max_prefill_tokens)
        if chunks:
            choices = iter(self._network.next_tokens(chunks))
            for chunk in chunks:
                self._computed(chunk)
                if chunk.completes:
                    emitted.append(self._emit(chunk.sequence, next(choices)))
        elif self._compiling and not emitted:
            wait(self._compiling.values(), _COMPILATION_WAIT_S, FIRST_COMPLETED)
        return Step(
            emitted,
            duration_s=clock.monotonic() - began_s,
            prefill_tokens=sum(chunk.size for chunk in chunks if not chunk.is_decode),
            sequences=len(chunks),
            kv_tokens=sum(chunk.start for chunk in chunks),
            free_blocks=self._pool.free,
        )

    def _take_compiled(self) -> None:
        """Lets sequences go on whose grammars are compiled, and refuses those that have none."""
        for id, future in [(id, one) for id, one in self._compiling.items() if one.done()]:
            del self._compiling[id]
            if error := future.exception():
                self._refuse(id, str(error))
            else:
                self._live[id].follow(future.result())

    def _refuse(self, id: str, problem: str) -> None:
        self.abort(id)
        self._refused.append(Emitted(id, error=InvalidInput(problem)))

    def _schedule(self, max_prefill_tokens: int) -> list[Chunk]:
        chunks: list[Chunk] = []
        computing: set[bytes] = set()  # blocks that this step computes; others wait to find them
        scorable = max(1, _SCORED_BYTES // (4 * self._network.vocabulary))
        for sequence in self._in_order():
            if len(chunks) == self._capacity.sequences:
                break
            if sequence.id in self._compiling:
                continue
            is_decode, size = sequence.decoding, 1
            if not is_decode:
                if not max_prefill_tokens:
                    continue
                if sequence.scores is None:
                    self._find_prefix(sequence)
                    if self._next_block(sequence) in computing:
                        continue
                size = min(sequence.pending, max_prefill_tokens)
                if sequence.scores:  # no place may come from the cache
                    size = min(size, scorable)
                    scorable -= size
                    if not size:
                        continue
            chunk = Chunk(sequence, sequence.computed, sequence.computed + size, is_decode)
            if not self._make_room(chunk):
                continue
            chunks.append(chunk)
            if not is_decode:
                max_prefill_tokens -= size
                computing |= self._blocks_of(chunk)
        return chunks

    def _in_order(self) -> list[LiveSequence]:
        return sorted(
            self._live.values(),
            key=lambda one: (not one.first, self._turns.get(one.id, -1)),
        )

    def _find_prefix(self, sequence: LiveSequence) -> None:
        """Looks for the next blocks of a sequence among those that others computed."""
        size = self._capacity.block_tokens
        if sequence.computed % size:
            return
        found = self._pool.find(sequence.full_blocks(size)[sequence.computed // size :])
        sequence.blocks += found
        sequence.computed += len(found) * size
        if sequence.cached is not None:
            cached = sequence.cached + len(found) * size
            sequence.cached = min(cached, sequence.prompt_size)

    def _next_block(self, sequence: LiveSequence) -> bytes | None:
        """Returns the digest of the block that it computes next, where that will be full."""
        size = self._capacity.block_tokens
        index = sequence.computed // size
        return sequence.digest(index, size) if (index + 1) * size < len(sequence.tokens) else None

    def _blocks_of(self, chunk: Chunk) -> set[bytes]:
        size = self._capacity.block_tokens
        return {
            chunk.sequence.digest(n, size) for n in range(chunk.start // size, chunk.end // size)
        }

    def _make_room(self, chunk: Chunk) -> bool:
        """Takes the blocks that a chunk needs, from younger sequences where none are free."""
        sequence = chunk.sequence
        missing = -(-chunk.end // self._capacity.block_tokens) - len(sequence.blocks)
        while (taken := self._pool.take(missing)) is None:
            last = next(s for s in reversed(self._in_order()) if s.blocks or s is sequence)
            if last is sequence:
                return False
            self._pool.release(last.reset())
        sequence.blocks += taken
        return True

    def _computed(self, chunk: Chunk) -> None:
        sequence, size = chunk.sequence, self._capacity.block_tokens
        sequence.computed = chunk.end
        for index in range(chunk.start // size, chunk.end // size):
            self._pool.publish(sequence.blocks[index], sequence.digest(index, size))
        if its := sequence.scores:
            new = its.found[len(its.reported) :]
            its.reported += [self._reported(one, its.text.add(one.token)) for one in new]

    def _emit(self, sequence: LiveSequence, choice: Choice) -> Emitted:
        if choice.token < 0:
            blocks = sequence.blocks
            self.abort(sequence.id)
            self._network.clear(self._pool.forget(blocks))
            return Emitted(sequence.id, error=Permanent("the model's output is not a number"))
        if sequence.grammar and (problem := sequence.grammar.problem):
            self.abort(sequence.id)
            message = f"the output can't follow its grammar any further: {problem}"
            return Emitted(sequence.id, error=InvalidInput(message))
        cached, sequence.cached = sequence.cached or 0, None
        prompt, sequence.scores = sequence.scores.reported if sequence.scores else (), None
        if sequence.sampling.max_tokens == 0:
            self.abort(sequence.id)
            return Emitted(sequence.id, finish="length", cached=cached, prompt_logprobs=prompt)
        text = sequence.append(choice.token)
        finish = sequence.finish_reason(self._capacity.context_tokens)
        if finish:
            text += sequence.rest_of_text()
            finish = "stop" if sequence.stopped_by else finish
            self.abort(sequence.id)
        return Emitted(
            sequence.id,
            (choice.token,),
            text,
            self._logprobs(choice, sequence.piece),
            finish,
            stopped_by=sequence.stopped_by,
            cached=cached,
            prompt_logprobs=prompt,
        )

    def _logprobs(self, choice: Choice, piece: str | None) -> Sequence[TokenLogprob]:
        """Returns the log probability of a token, where it was requested."""
        return () if choice.logprob is None else (self._reported(choice, piece),)

    def _reported(self, choice: Choice, piece: str | None) -> TokenLogprob:
        """Returns the log probability of a token; the texts of tokens make up that of the choice,
        also where several are one character, the bytes of each are its own."""
        likely = enumerate(choice.top, start=1)
        top = tuple(self._token(token, value, rank) for rank, (token, value) in likely)
        return self._token(choice.token, choice.logprob, choice.rank, piece, top)

    def _token(
        self,
        token: int,
        logprob: float | None,
        rank: int,
        piece: str | None = None,
        top: tuple[TokenLogprob, ...] = (),
    ) -> TokenLogprob:
        raw = self._bytes.of(token)
        text = raw.decode(errors="replace") if piece is None else piece
        return TokenLogprob(token, text, logprob, top, raw, rank)

    def _problem(self, new: NewSequence) -> str | None:
        tokens = [*new.prompt.tokens, *new.emitted]
        if new.id in self._live:
            return f"there is a sequence {new.id} already"
        if not new.prompt.tokens:
            return "the prompt is empty"
        if not all(0 <= token < self._network.vocabulary for token in tokens):
            return f"token ids must be 0 to {self._network.vocabulary - 1}"
        if len(tokens) >= self._capacity.context_tokens:
            return f"{len(tokens)} tokens leave none of {self._capacity.context_tokens} for output"
        return None
