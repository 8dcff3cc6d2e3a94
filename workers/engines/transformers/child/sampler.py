"""Choice of the next tokens, all rows of a step at once where they allow it.

The noise of a sampled token follows from its sequence's seed and its place in the output alone: a
sequence has the same text in any company, and after it was preempted.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from jobs.models.inputs.generation import Sampling
from workers.engines.transformers.child.sequences import Choice, LiveSequence
from workers.engines.transformers.structured.masks import Masks

_GREEDY_BELOW = 1e-5  # temperature
_SCORED_AT_ONCE = 64  # rows
_NUCLEUS_WIDTHS = (128, 2048)  # tokens among which top_p is sought before it is among all
_GOLDEN = -7046029254386353131  # 2**64 / golden ratio, as a signed number
_MIX = (-4658895280553007687, -7723592293110705685)  # constants of SplitMix64


class Sampler:
    """Chooses tokens."""

    def choose(
        self, logits: Tensor, rows: Sequence[LiveSequence], masks: Masks | None = None
    ) -> list[Choice]:
        """Chooses a token for each row; logits [row, token], float32, are overwritten."""
        broken = logits.isnan().any(-1).tolist()
        reported = _logprobs(logits, rows)
        if masks:
            masks.apply(logits)
        for row, sequence in zip(logits, rows, strict=True):
            self._adjust(row, sequence)
        chosen = logits.argmax(-1)
        sampled = [n for n, row in enumerate(rows) if row.sampling.temperature >= _GREEDY_BELOW]
        if sampled:
            chosen[sampled] = _sample(logits[sampled], [rows[n] for n in sampled])
        tokens = [-1 if no else token for token, no in zip(chosen.tolist(), broken, strict=True)]
        return [
            Choice(token) if raw is None else _reported(token, raw, row.sampling)
            for token, raw, row in zip(tokens, reported, rows, strict=True)
        ]

    def _adjust(self, logits: Tensor, sequence: LiveSequence) -> None:
        """Applies penalties, biases and the least length."""
        sampling = sequence.sampling
        if sampling.repetition_penalty != 1:
            seen = logits.new_tensor(sorted(set(sequence.tokens)), dtype=torch.long)
            found, factor = logits[seen], sampling.repetition_penalty
            logits[seen] = torch.where(found > 0, found / factor, found * factor)
        if (sampling.frequency_penalty or sampling.presence_penalty) and sequence.counts:
            seen = logits.new_tensor(list(sequence.counts), dtype=torch.long)
            counts = logits.new_tensor(list(sequence.counts.values()))
            logits[seen] -= sampling.frequency_penalty * counts + sampling.presence_penalty
        for token, bias in sampling.logit_bias.items():
            logits[token] += bias
        if sequence.bad_runs:
            _exclude(logits, _last_of_bad(sequence), sequence)
        if sequence.position < sampling.min_tokens:
            _exclude(logits, list(sequence.ending), sequence)


def _last_of_bad(sequence: LiveSequence) -> list[int]:
    """Returns the tokens that would complete a run of tokens which must not come."""
    output = sequence.tokens[sequence.prompt_size :]
    return [
        last
        for *first, last in sequence.bad_runs
        if len(first) <= len(output) and output[len(output) - len(first) :] == first
    ]


def _exclude(logits: Tensor, tokens: list[int], sequence: LiveSequence) -> None:
    tokens = [token for token in tokens if token < len(logits)]  # a tokenizer may have added more
    before = logits[tokens]
    logits[tokens] = -math.inf
    if sequence.grammar and not logits.isfinite().any():  # it allows nothing else
        logits[tokens] = before


def _logprobs(logits: Tensor, rows: Sequence[LiveSequence]) -> list[Tensor | None]:
    """Returns the model's own distribution for the rows that report it."""
    return [
        row.log_softmax(-1) if sequence.sampling.logprobs is not None else None
        for row, sequence in zip(logits, rows, strict=True)
    ]


def _reported(token: int, logprobs: Tensor, sampling: Sampling) -> Choice:
    if sampling.logprob_token_ids:
        named = list(dict.fromkeys((token, *sampling.logprob_token_ids)))
        found = zip(named, logprobs[named].tolist(), strict=True)
        likely = sorted(found, key=lambda pair: pair[1], reverse=True)
        return Choice(token, float(logprobs[token]), tuple(likely))
    top = logprobs.topk(sampling.logprobs or 0)
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return Choice(token, float(logprobs[token]), tuple(pairs))


def scores(logits: Tensor, tokens: Sequence[int], count: int) -> Iterator[Choice]:
    """Yields the log probability of the given token of each row, with its rank and the likeliest
    tokens; a few rows at a time, since a vocabulary may be large."""
    for start in range(0, len(tokens), _SCORED_AT_ONCE):
        rows = logits[start : start + _SCORED_AT_ONCE].log_softmax(-1)
        given = tokens[start : start + _SCORED_AT_ONCE]
        own = rows.gather(-1, torch.tensor(given, device=rows.device)[:, None])
        ranks = ((rows > own).sum(-1) + 1).tolist()
        top = rows.topk(count)
        likely = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        for token, logprob, rank, (ids, values) in zip(
            given, own[:, 0].tolist(), ranks, likely, strict=True
        ):
            yield Choice(token, logprob, tuple(zip(ids, values, strict=True)), rank)


def _sample(logits: Tensor, rows: Sequence[LiveSequence]) -> Tensor:
    """Samples by Gumbel noise: the largest sum of logit and noise is a sample."""
    sampling = [row.sampling for row in rows]
    logits = logits / logits.new_tensor([[one.temperature] for one in sampling])
    logits = _likely(_nucleus(_top_k(logits, sampling), sampling), sampling)
    return (logits + _noise(rows, logits)).argmax(-1)


def _top_k(logits: Tensor, sampling: Sequence[Sampling]) -> Tensor:
    """Excludes what is less likely than the k-th token of each row."""
    size = logits.shape[-1]
    counts = [min(one.top_k, size) if one.top_k > 0 else 0 for one in sampling]
    if not any(counts):
        return logits
    values = logits.topk(max(counts)).values
    floors = [float(values[n, k - 1]) if k else -math.inf for n, k in enumerate(counts)]
    return logits.masked_fill(logits < logits.new_tensor(floors)[:, None], -math.inf)


def _nucleus(logits: Tensor, sampling: Sequence[Sampling]) -> Tensor:
    """Excludes what the likeliest tokens make up top_p without."""
    if all(one.top_p >= 1 for one in sampling):
        return logits
    masses = logits.new_tensor([[one.top_p if one.top_p < 1 else math.inf] for one in sampling])
    probabilities = logits.softmax(-1)
    limited = masses.isfinite()
    for width in (*_NUCLEUS_WIDTHS, logits.shape[-1]):
        top = probabilities.topk(min(width, logits.shape[-1])).values
        sums = top.cumsum(-1)
        if bool(((sums[:, -1:] >= masses) | ~limited).all()):
            break
    last = (sums - top < masses).sum(-1, keepdim=True) - 1
    excluded = (probabilities < top.gather(-1, last.clamp(min=0))) & limited
    return logits.masked_fill(excluded, -math.inf)


def _likely(logits: Tensor, sampling: Sequence[Sampling]) -> Tensor:
    """Excludes what is less likely than min_p times the likeliest token."""
    if not any(one.min_p for one in sampling):
        return logits
    least = [[math.log(one.min_p) if one.min_p > 0 else -math.inf] for one in sampling]
    floors = logits.max(-1, keepdim=True).values + logits.new_tensor(least)
    return logits.masked_fill(logits < floors, -math.inf)


def _noise(rows: Sequence[LiveSequence], logits: Tensor) -> Tensor:
    """Returns standard Gumbel noise [row, token], by SplitMix64 over seed, position and token."""
    keys = [_key(row.sampling.seed or 0, row.position) for row in rows]
    tokens = torch.arange(1, logits.shape[-1] + 1, device=logits.device)
    bits = tokens * _GOLDEN + torch.tensor(keys, device=logits.device)[:, None]
    bits = (bits ^ _shifted(bits, 30)) * _MIX[0]
    bits = (bits ^ _shifted(bits, 27)) * _MIX[1]
    bits = bits ^ _shifted(bits, 31)
    # Uniform in (0, 1), exact where it is small: there lie the large values of the noise.
    uniform = (_shifted(bits, 11).float() + 0.5) * 2.0**-53
    return -(-torch.log1p(-uniform.clamp(max=1 - 2.0**-24))).log()


def _shifted(bits: Tensor, places: int) -> Tensor:
    return (bits >> places) & ((1 << (64 - places)) - 1)


def _key(seed: int, position: int) -> int:
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)
