"""Engine `transformers`: the tokens of `model.generate`, in any company, after any preemption."""

from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from jobs.models.inputs.generation import GenerationRequest
from jobs.models.inputs.logprobs import of_completion
from tests.integration.workers.engines.generators.conftest import load_tiny
from tests.support.generation import tiny_llama
from tests.support.generation.generating import (
    Generated,
    finish,
    new_sequence,
    prepared,
    resumed,
    run,
)
from workers.engines.generator import NewSequence
from workers.engines.protocol import InvalidInput
from workers.engines.transformers.engine import TransformersGenerator
from workers.generation.completion import logprob_objects

TEXTS = [
    *tiny_llama.TEXTS,
    *(f"{text} {number} and so on" for number in range(7) for text in tiny_llama.TEXTS[:4]),
]
SAMPLED = {"temperature": 1.3, "top_p": 0.9, "top_k": 40, "seed": 7}


@cache
def reference(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM, utils

    utils.logging.disable_progress_bar()
    return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()


def generated_alone(folder: Path, one: NewSequence) -> list[int]:
    tokens = torch.tensor([list(one.prompt.tokens)])
    found = reference(folder).generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=one.sampling.max_tokens,
        do_sample=False,
        pad_token_id=0,
    )
    return list(found[0, tokens.shape[1] :].tolist())


def greedy(tiny: TransformersGenerator, text: str, **sampling: Any) -> NewSequence:
    return new_sequence(prepared(tiny, text), **sampling)


def sampled(tiny: TransformersGenerator, text: str, **sampling: Any) -> NewSequence:
    return new_sequence(prepared(tiny, {"prompt": text}), **SAMPLED | sampling)


@pytest.mark.parametrize("prefill", [5, 16, 1000])
def test_a_batch_has_the_tokens_of_generate(
    tiny: TransformersGenerator, tiny_folder: Path, prefill: int
) -> None:
    ones = [new_sequence(prepared(tiny, text), salt=f"{prefill}") for text in TEXTS]
    done = run(tiny, ones, prefill=prefill)
    assert [one.tokens for one in done] == [generated_alone(tiny_folder, one) for one in ones]


def test_prefixes_from_the_cache_change_nothing(
    tiny: TransformersGenerator, tiny_folder: Path
) -> None:
    for _ in range(2):
        ones = [greedy(tiny, text) for text in TEXTS[:8]]
        done = run(tiny, ones)
    assert all(one.cached for one, text in zip(done, TEXTS, strict=False) if len(text) > 20)
    assert [one.tokens for one in done] == [generated_alone(tiny_folder, one) for one in ones]


def test_a_seed_decides_the_tokens_in_any_company(tiny: TransformersGenerator) -> None:
    alone = [run(tiny, [sampled(tiny, text)])[0].tokens for text in TEXTS[:8]]
    company = [greedy(tiny, text, max_tokens=5) for text in TEXTS[8:12]]
    together = run(tiny, [*company, *(sampled(tiny, text) for text in TEXTS[:8])])
    assert [one.tokens for one in together[4:]] == alone
    ones = [sampled(tiny, TEXTS[0], seed=seed) for seed in range(8)]
    assert len({tuple(one.tokens) for one in run(tiny, ones)}) == 8


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.0},
        SAMPLED,
        {"temperature": 0.0, "presence_penalty": 1.5, "frequency_penalty": 0.5},
        SAMPLED | {"repetition_penalty": 1.4, "min_p": 0.02},
    ],
)
def test_a_sequence_preempted_at_any_token_has_the_same_rest(
    tiny: TransformersGenerator, sampling: Any
) -> None:
    one = sampled(tiny, TEXTS[2], **sampling)
    [whole] = run(tiny, [one])
    for cut in range(1, len(whole.tokens)):
        [rest] = run(tiny, [resumed(one, whole.tokens[:cut])])
        assert list(whole.tokens[:cut]) + rest.tokens == whole.tokens
        assert whole.text.endswith(rest.text)


def test_a_sequence_aborted_on_the_way_goes_on_exactly(tiny: TransformersGenerator) -> None:
    one, other = sampled(tiny, TEXTS[4]), greedy(tiny, TEXTS[5])
    [whole] = run(tiny, [one])
    found = {one.id: Generated(), other.id: Generated()}
    tiny.add(one)
    tiny.add(other)
    while len(found[one.id].tokens) < 3:
        for emitted in tiny.step(16).emitted:
            found[emitted.id].add(emitted)
    tiny.abort(one.id)
    begun = found.pop(one.id)
    again = resumed(one, begun.tokens)
    tiny.add(again)
    found[again.id] = Generated()
    finish(tiny, found)
    assert begun.tokens + found[again.id].tokens == whole.tokens
    assert begun.text + found[again.id].text == whole.text


def test_sequences_of_a_pool_that_is_too_small_take_turns(tiny_folder: Path) -> None:
    with closing(load_tiny(tiny_folder, blocks=16, sequences=4)) as small:
        ones = [greedy(small, text, max_tokens=20) for text in TEXTS[:4]]
        done = run(small, ones)
        assert [one.tokens for one in done] == [generated_alone(tiny_folder, one) for one in ones]
        assert small.step(8).free_blocks == 16


def test_a_sequence_ends_at_the_context_by_length(tiny: TransformersGenerator) -> None:
    one = greedy(tiny, "word " * 60, max_tokens=None)
    [done] = run(tiny, [one])
    assert done.finish == "length"
    assert one.prompt.size + len(done.tokens) == tiny.capacity.context_tokens


def test_a_whole_prompt_is_computed_once_for_sequences_of_one_salt(
    tiny: TransformersGenerator,
) -> None:
    prompt = prepared(tiny, {"prompt": TEXTS[4] + "again", "temperature": 0})
    steps: list[Any] = []
    ones = [new_sequence(prompt, salt="three") for _ in range(3)]
    done = run(tiny, ones, prefill=1000, steps=steps)
    assert len({tuple(one.tokens) for one in done}) == 1
    assert sum(step.prefill_tokens for step in steps) < 2 * prompt.size
    assert [one.cached > 0 for one in done] == [False, True, True]
    for salt, cached in (("a", False), ("a", True), ("b", False)):
        [one] = run(tiny, [new_sequence(prompt, salt=salt)])
        assert (one.cached > 0) == cached


def test_what_its_vocabulary_does_not_have_is_refused(tiny: TransformersGenerator) -> None:
    bias = {"prompt": "a", "logit_bias": {"1000000": 1}}
    prompts = [10**9], [tiny_llama.VOCABULARY], "\ud800"
    found = tiny.prepare([bias, *({"prompt": prompt} for prompt in prompts)])
    assert [type(one) for one in found] == [InvalidInput] * 4


def own_logprobs(folder: Path, tokens: Sequence[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits = reference(folder)(torch.tensor([list(tokens)])).logits[0]
    return logits[:-1].log_softmax(-1)


@pytest.mark.parametrize("prefill", [5, 16, 1000])
@pytest.mark.parametrize("text", [TEXTS[1], TEXTS[2] + " " + TEXTS[0]])
def test_the_tokens_of_a_prompt_have_the_log_probabilities_of_the_model(
    tiny: TransformersGenerator, tiny_folder: Path, prefill: int, text: str
) -> None:
    run(tiny, [greedy(tiny, text)])  # which leaves it in the cache
    asked = {"prompt": text, "temperature": 0, "echo": True, "logprobs": 3}
    one = new_sequence(prepared(tiny, asked))
    [done] = run(tiny, [one], prefill=prefill)
    tokens, expected = one.prompt.tokens, own_logprobs(tiny_folder, one.prompt.tokens)
    assert [seen.token for seen in done.prompt_logprobs] == list(tokens)
    assert "".join(seen.text for seen in done.prompt_logprobs) == text
    assert b"".join(seen.own_bytes for seen in done.prompt_logprobs) == text.encode()
    assert done.prompt_logprobs[0].logprob is None
    for row, token, seen in zip(expected, tokens[1:], done.prompt_logprobs[1:], strict=True):
        assert seen.logprob == pytest.approx(float(row[token]), abs=1e-3)
        assert seen.rank == int((row > row[token]).sum()) + 1
        best = row.topk(3)
        assert [its.token for its in seen.top] == best.indices.tolist()
        values = [pytest.approx(value, abs=1e-3) for value in best.values.tolist()]
        assert [its.logprob for its in seen.top] == values
    assert done.tokens == generated_alone(tiny_folder, one)


def test_a_prompt_alone_is_scored_beside_others(
    tiny: TransformersGenerator, tiny_folder: Path
) -> None:
    asked = {"prompt": TEXTS[0], "echo": True, "logprobs": 0, "max_tokens": 0}
    ones = [new_sequence(prepared(tiny, asked), max_tokens=0) for _ in range(2)]
    other = greedy(tiny, TEXTS[5])
    *scored, beside = run(tiny, [*ones, other], prefill=7)
    for one, done in zip(ones, scored, strict=True):
        assert (done.tokens, done.text, done.finish) == ([], "", "length")
        rows, tokens = own_logprobs(tiny_folder, one.prompt.tokens), one.prompt.tokens[1:]
        expected = [float(row[token]) for row, token in zip(rows, tokens, strict=True)]
        found = [seen.logprob for seen in done.prompt_logprobs[1:]]
        assert found == pytest.approx(expected, abs=1e-3)
    assert beside.tokens == generated_alone(tiny_folder, other)


def test_all_likely_tokens_come_each_with_its_bytes(tiny: TransformersGenerator) -> None:
    asked = {"prompt": TEXTS[1], "temperature": 0, "logprobs": 5}
    [done] = run(tiny, [new_sequence(prepared(tiny, asked), max_tokens=40)])
    found = of_completion(logprob_objects(done.logprobs, GenerationRequest()), 0)
    for one, likely in zip(done.logprobs, found["top_logprobs"], strict=True):
        chosen = one.token in [its.token for its in one.top]
        assert len(likely) == 5 + (not chosen)
    assert all(
        name in top for name, top in zip(found["tokens"], found["top_logprobs"], strict=True)
    )
    spelled = b"".join(
        one.own_bytes for one in done.logprobs[: -1 if done.finish == "stop" else None]
    )
    assert spelled.decode(errors="replace") == done.text
