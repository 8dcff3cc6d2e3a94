"""Behaviour of every generator: one suite over all of them."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support import clients
from tests.support.generation.generating import Generated, resumed, run, sequence
from tests.support.platforms import GENERATING
from tests.support.wait import eventually
from workers.engines.generator import Generator, NewSequence, Prompt
from workers.engines.protocol import InvalidInput

PLATFORM = GENERATING
MODELS = """
[[model]]
name = "echoes"
version = "1"
engine = "echo_chat"
target_ttft_ms = 60000
options = { step_ms = 2.0, context_tokens = 256 }
"""
TEXTS = ["one two three four", "a", "the cat sat on the mat " * 4, "five six"]


def chat(text: str, **fields: Any) -> dict[str, Any]:
    return clients.chat(text, **{"temperature": 0, "max_tokens": 12, **fields})


def greedy(generator: Generator, text: str, **fields: Any) -> NewSequence:
    value = chat(text, **fields)
    return sequence(generator, value, max_tokens=value["max_tokens"])


@pytest.fixture
def computes(generator: Generator) -> Generator:
    """A generator that computes tokens by itself, and knows its prompts and blocks."""
    if not generator.capacity.blocks:
        pytest.skip("the server behind it does so")
    return generator


@pytest.fixture
def resumes(generator: Generator) -> Generator:
    """A generator whose sequences can go on after an abort."""
    if not generator.capacity.resumes:
        pytest.skip("what was aborted at a server is lost")
    return generator


def test_it_is_a_generator_whose_blocks_hold_at_least_one_sequence(generator: Generator) -> None:
    assert isinstance(generator, Generator)
    assert generator.memory_mb() >= 0
    capacity = generator.capacity
    assert not capacity.blocks or capacity.context_tokens <= capacity.blocks * capacity.block_tokens
    step = generator.step(64)  # of nothing to do
    assert (len(step.emitted), step.sequences, step.prefill_tokens) == (0, 0, 0)


def test_a_sequence_ends_the_same_alone_and_in_company(generator: Generator) -> None:
    together = run(generator, [greedy(generator, text) for text in TEXTS])
    for text, found in zip(TEXTS, together, strict=True):
        [alone] = run(generator, [greedy(generator, text)])
        assert found.finish in ("stop", "length")
        assert 1 <= found.output <= 12
        assert found.text
        assert (found.output, found.text) == (alone.output, alone.text)
        assert found.tokens == alone.tokens or not generator.capacity.blocks


def test_max_tokens_ends_a_sequence_by_length(generator: Generator) -> None:
    [done] = run(generator, [greedy(generator, TEXTS[0], max_tokens=2)])
    assert (done.output, done.finish) == (2, "length")


def test_a_preempted_sequence_goes_on_where_it_was(resumes: Generator) -> None:
    one = greedy(resumes, TEXTS[0])
    [whole] = run(resumes, [one])
    cut = max(1, len(whole.tokens) // 2)
    again = Generated(tokens=list(whole.tokens[:cut]))
    [rest] = run(resumes, [resumed(one, again.tokens)])
    assert again.tokens + rest.tokens == whole.tokens
    assert whole.text.endswith(rest.text)
    assert rest.finish == whole.finish


def test_an_aborted_sequence_emits_nothing_and_frees_its_blocks(generator: Generator) -> None:
    first, other = greedy(generator, TEXTS[0]), greedy(generator, TEXTS[1])
    free = generator.capacity.blocks
    generator.add(first)
    assert generator.step(64).free_blocks < free or not free
    generator.abort(first.id)
    generator.abort("nobody")
    [done] = run(generator, [other])
    assert done.finish
    assert generator.step(64).free_blocks == free


def test_a_sequence_aborted_after_its_first_token_emits_no_other(generator: Generator) -> None:
    def begun() -> NewSequence | None:
        """A sequence with a token; None for one that has ended, as a server's may meanwhile."""
        one, found = greedy(generator, "one two three " * 20, max_tokens=40), Generated()
        generator.add(one)
        while not found.text:
            for emitted in generator.step(64).emitted:
                found.add(emitted)
        return None if found.finish else one

    first = eventually(begun)
    assert first
    generator.abort(first.id)
    [done] = run(generator, [greedy(generator, "a")])  # fails where anything else is emitted
    assert done.finish


def test_a_prompt_is_prefilled_in_chunks_and_only_where_that_is_allowed(
    computes: Generator,
) -> None:
    steps: list[Any] = []
    one = replace(greedy(computes, "seven eight nine ten " * 5), salt="shares no prefix")
    size = one.prompt.size
    assert size > 8
    run(computes, [one], prefill=8, steps=steps)
    assert all(step.prefill_tokens <= 8 for step in steps)
    assert sum(step.prefill_tokens for step in steps) == size
    computes.add(one)
    step = computes.step(0)
    assert (len(step.emitted), step.prefill_tokens) == (0, 0)
    computes.abort(one.id)


def test_prompts_are_computed_in_the_order_that_a_step_names(computes: Generator) -> None:
    texts = "eleven twelve " * 8, "thirteen fourteen " * 8, "fifteen " * 16
    ones = [replace(greedy(computes, text), salt=f"prefills {text[:6]}") for text in texts]
    for one in ones:
        computes.add(one)
    first: list[str] = []
    while len(first) < len(ones):
        step = computes.step(8, [ones[2].id, ones[0].id, ones[1].id])
        first += [one.id for one in step.emitted if one.id not in first]
    for one in ones:
        computes.abort(one.id)
    assert first == [ones[2].id, ones[0].id, ones[1].id]


def test_an_id_that_is_there_is_refused_and_its_abort_leaves_no_trace(generator: Generator) -> None:
    one = greedy(generator, TEXTS[0])
    generator.add(one)
    with pytest.raises(ValueError, match=one.id):
        generator.add(one)
    generator.abort(one.id)
    assert not generator.step(64).emitted


@pytest.mark.parametrize(
    "value",
    [None, "a text", {}, {"messages": []}, {"prompt": ""}, {"prompt": []}, {"prompt": [-1]},
     chat("a", temperature=-1), chat("a", max_tokens=0), chat("a", n=0)],
)  # fmt: skip
def test_what_could_harm_it_is_refused_in_its_place(generator: Generator, value: Any) -> None:
    first, refused, last = generator.prepare([chat("a"), value, chat("b")])
    assert isinstance(first, Prompt)
    assert isinstance(refused, InvalidInput)
    assert isinstance(last, Prompt)


def test_a_prompt_larger_than_the_context_is_refused(generator: Generator) -> None:
    """By itself, or by the server that knows the context."""
    [prompt] = generator.prepare([chat("word " * 100_000)])
    if isinstance(prompt, Prompt):
        [done] = run(generator, [sequence(generator, chat("word " * 100_000))])
        prompt = done.error
    assert isinstance(prompt, InvalidInput)


def test_it_serves_after_a_restart_and_goes_on_where_it_can(generator: Generator) -> None:
    one = greedy(generator, TEXTS[0])
    [whole] = run(generator, [one])
    for begun in ([], whole.tokens[:1]) if generator.capacity.resumes else ([],):
        generator.add(resumed(one, begun))
        generator.step(64)
        generator.restart()
        assert not generator.step(64).emitted
        [rest] = run(generator, [resumed(one, begun)])
        assert whole.text.endswith(rest.text)
        assert [*begun, *rest.tokens] == whole.tokens or not generator.capacity.blocks
        assert len(begun) or rest.text == whole.text
