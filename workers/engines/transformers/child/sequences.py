"""State of a sequence in the child process: tokens, blocks, text, and its end."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workers.engines.generator import FinishReason, NewSequence, TokenLogprob
from workers.engines.transformers.child.blocks import digests, seed_digest
from workers.engines.transformers.child.text import Detokenizer, StopStrings
from workers.engines.transformers.structured.matching import GrammarState
from workers.engines.transformers.tool_formats import CallText, tags

if TYPE_CHECKING:
    from llguidance import LLMatcher


class LiveSequence:
    """Sequence that was added and has not ended.

    `max_tokens` of its sampling counts the tokens that it had when it was added.
    """

    def __init__(self, new: NewSequence, tokenizer: Any, ends: frozenset[int]) -> None:
        self.id = new.id
        self.sampling = new.sampling
        self.first = new.first
        self.prompt_size = len(new.prompt.tokens)
        self.tokens = list(new.prompt.tokens)  #: of prompt and output
        self.counts: Counter[int] = Counter()  #: of the output, by token
        self.blocks: list[int] = []
        self.computed = 0  #: tokens whose keys and values are in the blocks
        self.slot: int | None = None  #: of its adapter
        self.cached: int | None = 0  #: tokens of the prompt found in the cache; None: reported
        self.decoding = False  #: it has one token to compute, which its last step produced
        self.piece: str | None = None  #: text that its last token added; None: it has ended it
        self.grammar: GrammarState | None = None  #: that its output follows, once it is compiled
        top = None if new.emitted else new.prompt.request.scored
        #: of its prompt's tokens; None: they aren't asked for, or were reported
        self.scores = None if top is None else PromptScores(self.tokens[0], top, tokenizer)
        self._salt = new.salt
        asked = new.sampling
        self._ends = ends
        self.ending = frozenset(asked.stop_token_ids)  #: tokens that end it
        if not asked.ignore_eos:
            self.ending |= ends
        self.bad_runs = _token_runs(tokenizer, asked.bad_words)  #: tokens that don't come together
        self._unwritten = frozenset() if asked.include_stop_str_in_output else self.ending
        self._digests: list[bytes] = []
        skips = asked.skip_special_tokens
        self._detokenizer = Detokenizer(tokenizer, new.prompt.tokens, skips_special=skips)
        form = new.prompt.call_format
        tools = new.prompt.request.tool_use.callable
        self._calls = CallText(form, [tool["name"] for tool in tools]) if form else None
        self._tags = tags(tokenizer, form) if form and skips else {}  # of calls, by their tokens
        self._stops = StopStrings(asked.stop, returned=asked.include_stop_str_in_output)
        ours = "".join(map(self.append, new.emitted))  # was delivered
        if len(new.text) > len(ours):  # and calls with it, by a release that held none back
            self._calls, self._tags = None, {}
        self.decoding = False

    @property
    def position(self) -> int:
        """Tokens of the output so far."""
        return len(self.tokens) - self.prompt_size

    @property
    def stopped_by(self) -> str | None:
        """Stop string that was found."""
        return self._stops.matched

    @property
    def pending(self) -> int:
        """Tokens that are not computed."""
        return len(self.tokens) - self.computed

    def append(self, token: int) -> str:
        """Adds a token of the output; returns the text that is final now."""
        self.tokens.append(token)
        self.counts[token] += 1
        self.decoding = True
        self.piece = None if token in self._unwritten else self._detokenizer.add(token)
        if token in self._tags:
            self.piece = (self.piece or "") + self._tags[token]
        if self.grammar and token not in self._ends:
            self.grammar.accept(token)
        may_end = self.position >= self.sampling.min_tokens
        text = self._stops.add(self.piece, may_end=may_end) if self.piece else ""
        return self._calls.add(text) if self._calls else text

    def follow(self, matcher: "LLMatcher") -> None:
        """Lets the output follow a grammar, in which it is where its tokens so far have led."""
        output = self.tokens[self.prompt_size :]
        self.grammar = GrammarState(matcher, (one for one in output if one not in self._ends))

    def finish_reason(self, context_tokens: int) -> FinishReason | None:
        """Returns why it ends with its last token, or None."""
        if self.tokens[-1] in self.ending or self._stops.matched:
            return "stop"
        if self.grammar and self.grammar.is_complete:
            return "stop"
        most = self.sampling.max_tokens
        if (most is not None and self.position >= most) or len(self.tokens) >= context_tokens:
            return "length"
        return None

    def rest_of_text(self) -> str:
        """Returns the text that was held back; called once, at the end."""
        text = "" if self._stops.matched else self._rest()
        if not self._calls:
            return text
        cut = not self._stops.matched and self.tokens[-1] not in self.ending
        return self._calls.add(text) + self._calls.finish(cut=cut)

    def _rest(self) -> str:
        text = self._stops.add(self._detokenizer.finish())
        return text if self._stops.matched else text + self._stops.finish()

    def full_blocks(self, block_tokens: int) -> Sequence[bytes]:
        """Returns the digests of all blocks by which a prefix can be found.

        The last token is never among them: the next one follows from computing it.
        """
        count = (len(self.tokens) - 1) // block_tokens
        if count > len(self._digests):
            self.digest(count - 1, block_tokens)
        return self._digests[:count]

    def digest(self, index: int, block_tokens: int) -> bytes:
        """Returns the digest of a full block."""
        known = len(self._digests)
        if index >= known:
            tokens = self.tokens[known * block_tokens : (index + 1) * block_tokens]
            chained = self._digests[-1] if known else seed_digest(self._salt)
            self._digests += digests(tokens, block_tokens, chained)
        return self._digests[index]

    def reset(self) -> list[int]:
        """Forgets what was computed; returns the blocks to release."""
        blocks, self.blocks = self.blocks, []
        self.computed, self.decoding = 0, False
        if self.cached is not None:
            self.cached = 0
        return blocks


def _token_runs(tokenizer: Any, texts: Sequence[str]) -> Sequence[list[int]]:
    """Returns the tokens of texts, in the middle of a word and at the beginning of one."""
    spelled = [before + text.lstrip() for text in texts for before in ("", " ")]
    runs = (tokenizer.encode(text, add_special_tokens=False).ids for text in spelled)
    return [run for run in runs if run]


@dataclass(frozen=True, slots=True)
class Choice:
    """Token that was chosen for a sequence."""

    token: int  #: negative: the model gave no numbers to choose by
    logprob: float | None = None  #: None: not requested
    top: Sequence[tuple[int, float]] = ()  #: likeliest tokens: id, logprob
    rank: int = 0  #: place of a prompt's token among all, from 1


class PromptScores:
    """Log probabilities of a prompt's tokens, as far as they are computed. top: likeliest tokens
    to find beside each."""

    def __init__(self, first: int, top: int, tokenizer: Any) -> None:
        self.top = top
        self.found = [Choice(first)]  #: one a token
        self.reported: list[TokenLogprob] = []  #: the same, with their texts
        self.text = Detokenizer(tokenizer, ())


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens of one sequence that a step computes: `start` up to `end`."""

    sequence: LiveSequence
    start: int
    end: int
    is_decode: bool  #: the one token that the last step produced

    @property
    def size(self) -> int:
        """Tokens of it."""
        return self.end - self.start

    @property
    def scored(self) -> range:
        """Places of it from which log probabilities follow, each of the prompt's next token."""
        its, scores = self.sequence, self.sequence.scores
        if scores is None:
            return range(0)
        return range(max(self.start, len(scores.found) - 1), min(self.end, its.prompt_size - 1))

    @property
    def completes(self) -> bool:
        """True where the sequence gets its next token from it."""
        return self.end == len(self.sequence.tokens)
