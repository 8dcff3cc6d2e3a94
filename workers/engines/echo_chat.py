"""Engine `echo_chat`: answers with the words of the prompt, a token each, for tests and benches.

A sequence ends after the prompt's words ("stop"), or starts them over while `min_tokens` asks for
more, or the end token is ignored. It takes KV blocks and time as a network would; parameters by
which tokens are chosen change nothing.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

from jobs import clock
from jobs.models.inputs.generation import GenerationRequest
from workers.engines.generator import (
    Capacity,
    Emitted,
    FinishReason,
    NewSequence,
    Prompt,
    Step,
    Tokenized,
    TokenLogprob,
    prompt_too_long,
    prompts,
    unknown_token,
)
from workers.engines.protocol import InvalidInput

_VOCABULARY = 1 << 31
_SURE = -0.0  # log probability of a token that is certain
_WORD = re.compile(r"\s*\S+")


class EchoChat:
    """Generator whose tokens are words."""

    def __init__(
        self,
        *,
        step_ms: float = 0.0,
        prefill_us: float = 0.0,
        blocks: int = 4096,
        block_tokens: int = 16,
        sequences: int = 64,
        context_tokens: int = 8192,
        token_log: str = "",
    ) -> None:
        self._capacity = Capacity(blocks, block_tokens, sequences, context_tokens)
        self._step_s, self._prefill_s = step_ms / 1e3, prefill_us / 1e6
        self._running: dict[str, _Sequence] = {}
        self._log = os.open(token_log, os.O_APPEND | os.O_CREAT | os.O_WRONLY) if token_log else -1

    @property
    def capacity(self) -> Capacity:
        """Bounds, as loaded."""
        return self._capacity

    def prepare(self, inputs: Sequence[Any]) -> list[Prompt | InvalidInput]:
        """Prepares inputs, as `Generator.prepare`."""
        return prompts(inputs, self._prompt)

    def _prompt(self, _: Any, request: GenerationRequest) -> Prompt:
        if field := request.constrained_by:
            raise ValueError(f"{field} isn't supported: the model repeats words; leave it out")
        if request.sampling.bad_words:
            raise ValueError("bad_words isn't supported: the model repeats words; leave it out")
        words = self._kept(request)
        if not words:
            raise ValueError("prompt has no words")
        if len(words) >= self._capacity.context_tokens:
            raise prompt_too_long(len(words), request, self._capacity.context_tokens)
        if any(token >= _VOCABULARY for token in request.sampling.logit_bias):
            raise ValueError("logit_bias names a token that the model doesn't have")
        whole = isinstance(request.prompt, str) and request.truncation.tokens is None
        text = str(request.prompt) if whole else " ".join(words)
        cut = 0 if request.truncation.tokens is None else len(_words(request)) - len(words)
        return Prompt([_id(word) for word in words], len(words), request, text, truncated=cut)

    def tokenize(self, request: GenerationRequest) -> Tokenized:
        """Returns the words of a prompt, as `Generator.tokenize`."""
        if not (words := _words(request)):
            raise ValueError("prompt has no words")
        return Tokenized(list(map(_id, words)), words, self._capacity.context_tokens)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Returns the words that a prompt of token ids stands for."""
        for place, token in enumerate(tokens):
            if token >= _VOCABULARY:
                raise unknown_token(place, token, _VOCABULARY)
        return " ".join(_words(GenerationRequest(prompt=tokens)))

    def _kept(self, request: GenerationRequest) -> Sequence[str]:
        bounds = self._capacity.context_tokens, request.sampling.max_tokens
        return request.truncation.cut(_words(request), *bounds)

    def add(self, sequence: NewSequence) -> None:
        """Adds a sequence, as `Generator.add`."""
        if sequence.id in self._running:
            raise ValueError(f"{sequence.id} is there already")
        words = self._kept(sequence.prompt.request)
        self._running[sequence.id] = _Sequence(sequence, words, self._capacity.context_tokens)

    def abort(self, id: str) -> None:
        """Removes a sequence, as `Generator.abort`."""
        self._running.pop(id, None)

    def step(self, max_prefill_tokens: int, prefills: Sequence[str] = ()) -> Step:
        """Runs one step, as `Generator.step`. A sequence that finds no free block emits nothing."""
        since_s, left, kv_tokens = clock.monotonic(), max_prefill_tokens, 0
        emitted: list[Emitted] = []
        free, prompts = self._free(), self._prompt_blocks()
        turns = {id: turn for turn, id in enumerate(prefills)}
        in_order = sorted(
            self._running.values(),
            key=lambda one: (not one.first, turns.get(one.id, -1)),
        )
        active = in_order[: self._capacity.sequences]
        for one in active:
            tokens = 1 if one.decodes else min(left, one.to_prefill - one.computed)
            in_prompt = max(prompts[one.prompt], self._in_prompt(one, one.computed + tokens))
            more = in_prompt - prompts[one.prompt]
            more += self._beyond_prompt(one, one.computed + tokens)
            more -= self._beyond_prompt(one, one.computed)
            if not tokens or more > free:
                continue
            free -= more
            prompts[one.prompt] = in_prompt
            left -= 0 if one.decodes else tokens
            kv_tokens += one.computed
            one.computed += tokens
            if one.decodes:
                emitted.append(one.emit())
        for ended in emitted:
            if ended.finish:
                del self._running[ended.id]
        prefilled = max_prefill_tokens - left
        if active:
            clock.sleep(self._step_s + prefilled * self._prefill_s)
        if self._log >= 0 and emitted:
            os.write(self._log, b"%d\n" % len(emitted))
        took_s = clock.monotonic() - since_s
        return Step(emitted, took_s, prefilled, len(active), kv_tokens, self._free())

    def restart(self) -> None:
        """Starts again, as `Generator.restart`."""
        self._running.clear()

    def memory_mb(self) -> float:
        """Returns 0: it has no weights."""
        return 0.0

    def close(self) -> None:
        """Forgets all sequences."""
        self._running.clear()
        if self._log >= 0:
            os.close(self._log)

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._capacity.block_tokens)

    def _in_prompt(self, one: "_Sequence", computed: int) -> int:
        """Returns the full blocks of its prompt, which it shares with the others that have it."""
        return min(computed, one.prompt_size - 1) // self._capacity.block_tokens

    def _beyond_prompt(self, one: "_Sequence", computed: int) -> int:
        return self._blocks(computed) - self._in_prompt(one, computed)

    def _prompt_blocks(self) -> dict[int, int]:
        """Returns the blocks that prompts have, by prompt."""
        found = dict.fromkeys((one.prompt for one in self._running.values()), 0)
        for one in self._running.values():
            found[one.prompt] = max(found[one.prompt], self._in_prompt(one, one.computed))
        return found

    def _free(self) -> int:
        own = sum(self._beyond_prompt(one, one.computed) for one in self._running.values())
        return self._capacity.blocks - own - sum(self._prompt_blocks().values())


class _Sequence:
    """Sequence that runs, with its words and the text of what it emitted."""

    def __init__(self, new: NewSequence, words: Sequence[str], context_tokens: int) -> None:
        self.id, self._sampling = new.id, new.sampling
        self.first = new.first
        self.prompt, self.prompt_size = id(new.prompt), new.prompt.size
        self._kept = new.prompt  # as long as its id counts
        self._words = words
        room = context_tokens - new.prompt.size
        most = new.sampling.max_tokens
        self._most = room if most is None else min(most, room)
        self.to_prefill = new.prompt.size + len(new.emitted)
        self.computed = 0  #: tokens in the KV cache
        self._emitted, self._text, self._released = 0, "", 0
        for _ in new.emitted:
            self._advance()
        self._released = len(self._text) - self._held_back()

    @property
    def decodes(self) -> bool:
        """True once its prompt is in the cache."""
        return self.computed >= self.to_prefill

    def emit(self) -> Emitted:
        """Returns its next token, with the text that no stop string can take back any more."""
        scored = None if self._emitted else self._kept.request.scored
        prompt = () if scored is None else _prompt_logprobs(self._kept, scored)
        if not self._most:
            return Emitted(self.id, finish="length", prompt_logprobs=prompt)
        word, stopped_by = self._advance(), None
        finish, end = self._finish(word), len(self._text)
        returned = self._sampling.include_stop_str_in_output
        if finish is None:
            end -= self._held_back()
        elif stopped := self._stopped_by():
            end, stopped_by = stopped
            end += len(stopped_by) if returned else 0
        elif self._ends_by(word) and not returned:
            end -= len(word)
        text, self._released = self._text[self._released : end], end
        top = self._sampling.logprobs
        return Emitted(
            self.id,
            [_id(word)],
            text,
            [] if top is None else [_logprob(word, top)],
            finish,
            stopped_by=stopped_by,
            prompt_logprobs=prompt,
        )

    def _advance(self) -> str:
        word = self._words[self._emitted % len(self._words)]
        word = f" {word}" if self._emitted else word
        self._emitted += 1
        self._text += word
        return word

    def _finish(self, word: str) -> FinishReason | None:
        may_stop = self._emitted >= self._sampling.min_tokens
        is_last = self._emitted >= len(self._words) and not self._sampling.ignore_eos
        if may_stop and (is_last or self._ends_by(word) or self._stopped_by()):
            return "stop"
        return "length" if self._emitted >= self._most else None

    def _ends_by(self, word: str) -> bool:
        return _id(word) in self._sampling.stop_token_ids

    def _stopped_by(self) -> tuple[int, str] | None:
        """Returns where the first stop string begins, and that; None: there is none yet."""
        found = ((self._text.find(stop, self._released), stop) for stop in self._sampling.stop)
        return min((one for one in found if one[0] >= 0), default=None)

    def _held_back(self) -> int:
        return _held_back(self._text, self._sampling.stop)


def _held_back(text: str, stops: Iterable[str]) -> int:
    """Returns the length of the longest end of a text with which a stop string begins."""
    longest = 0
    for stop in stops:
        for length in range(min(len(stop), len(text)), longest, -1):
            if text.endswith(stop[:length]):
                longest = length
                break
    return longest


def _words(request: GenerationRequest) -> list[str]:
    """Returns the words to answer with: those of the last message, or of the prompt."""
    if request.messages is not None:
        return str(request.messages[-1].get("content") or "").split()
    if isinstance(request.prompt, str):
        return request.prompt.split()
    return [f"t{token}" for token in request.prompt or ()]


def _id(word: str) -> int:
    return crc32(word.encode()) % _VOCABULARY


def _logprob(word: str, top: int) -> TokenLogprob:
    only = TokenLogprob(_id(word), word, _SURE, rank=1)
    return replace(only, top=(only,)) if top else only


def _prompt_logprobs(prompt: Prompt, top: int) -> list[TokenLogprob]:
    """Returns those of the prompt's words, each with the white space before it."""
    first, *others = _WORD.findall(prompt.text)
    found = [TokenLogprob(_id(first), first, None), *(_logprob(word, top) for word in others)]
    return [
        replace(one, token=token, top=tuple(replace(its, token=token) for its in one.top))
        for one, token in zip(found, prompt.tokens, strict=True)
    ]
