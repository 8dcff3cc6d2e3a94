"""Behaviour of every generator: one suite over all of them."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.generation.generating import Generated, resumed, run, sequence
from tests.support.platforms import GENERATING
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
    message = {"role": "user", "content": text}
    return {"messages": [message], "temperature": 0, "max_tokens": 12, **fields}


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


def test_it_is_a_generator(generator: Generator) -> None:
    assert isinstance(generator, Generator)
    assert generator.memory_mb() >= 0


def test_its_blocks_hold_at_least_one_sequence(computes: Generator) -> None:
    capacity = computes.capacity
    assert capacity.context_tokens <= capacity.blocks * capacity.block_tokens


def test_each_sequence_ends_once_with_a_reason(generator: Generator) -> None:
    for done in run(generator, [greedy(generator, text) for text in TEXTS]):
        assert done.finish in ("stop", "length")
        assert 1 <= done.output <= 12
        assert done.text


def test_a_sequence_is_the_same_alone_and_in_company(generator: Generator) -> None:
    alone = [run(generator, [greedy(generator, text)])[0] for text in TEXTS]
    together = run(generator, [greedy(generator, text) for text in TEXTS])
    assert [one.output for one in together] == [one.output for one in alone]
    assert [one.text for one in together] == [one.text for one in alone]


def test_a_sequence_is_the_same_in_company_token_by_token(computes: Generator) -> None:
    alone = [run(computes, [greedy(computes, text)])[0] for text in TEXTS]
    together = run(computes, [greedy(computes, text) for text in TEXTS])
    assert [one.tokens for one in together] == [one.tokens for one in alone]


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
    first, other = greedy(generator, "one two three " * 20, max_tokens=40), greedy(generator, "a")
    found = Generated()
    generator.add(first)
    while not found.text:
        for emitted in generator.step(64).emitted:
            found.add(emitted)
    assert not found.finish
    generator.abort(first.id)
    [done] = run(generator, [other])  # which fails where anything else is emitted
    assert done.finish


def test_an_abort_before_the_first_step_leaves_no_trace(generator: Generator) -> None:
    one = greedy(generator, TEXTS[0])
    generator.add(one)
    generator.abort(one.id)
    assert not generator.step(64).emitted


def test_nothing_to_do_is_an_empty_step(generator: Generator) -> None:
    step = generator.step(64)
    assert (len(step.emitted), step.sequences, step.prefill_tokens) == (0, 0, 0)


def test_a_prompt_is_prefilled_in_chunks(computes: Generator) -> None:
    steps: list[Any] = []
    one = replace(greedy(computes, "seven eight nine ten " * 5), salt="shares no prefix")
    size = one.prompt.size
    assert size > 8
    run(computes, [one], prefill=8, steps=steps)
    assert all(step.prefill_tokens <= 8 for step in steps)
    assert sum(step.prefill_tokens for step in steps) == size


def test_no_prefill_is_computed_where_none_is_allowed(computes: Generator) -> None:
    one = greedy(computes, TEXTS[0])
    computes.add(one)
    step = computes.step(0)
    assert (len(step.emitted), step.prefill_tokens) == (0, 0)
    computes.abort(one.id)


def test_an_id_that_is_there_is_refused(generator: Generator) -> None:
    one = greedy(generator, TEXTS[0])
    generator.add(one)
    with pytest.raises(ValueError, match=one.id):
        generator.add(one)
    generator.abort(one.id)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "a text",
        {},
        {"messages": []},
        {"prompt": ""},
        {"prompt": []},
        {"prompt": [-1]},
        chat("a", temperature=-1),
        chat("a", max_tokens=0),
        chat("a", n=0),
    ],
)
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


def test_it_serves_after_a_restart(generator: Generator) -> None:
    [whole] = run(generator, [greedy(generator, TEXTS[0])])
    generator.add(greedy(generator, TEXTS[0]))
    generator.step(64)
    generator.restart()
    assert not generator.step(64).emitted
    [again] = run(generator, [greedy(generator, TEXTS[0])])
    assert again.text == whole.text


def test_a_sequence_goes_on_after_a_restart(resumes: Generator) -> None:
    one = greedy(resumes, TEXTS[0])
    [whole] = run(resumes, [one])
    resumes.add(resumed(one, whole.tokens[:1]))
    resumes.restart()
    assert not resumes.step(64).emitted
    [rest] = run(resumes, [resumed(one, whole.tokens[:1])])
    assert rest.tokens == whole.tokens[1:]
