"""Behaviour of every generator: one suite over all of them."""

from typing import Any

import pytest

from tests.support.generating import Generated, new_sequence, prepared, resumed, run, sequence
from workers.engines.generator import Generator, Prompt
from workers.engines.protocol import InvalidInput

TEXTS = ["one two three four", "a", "the cat sat on the mat " * 4, "five six"]


def greedy(generator: Generator, text: str, **sampling: Any) -> Any:
    return sequence(generator, {"prompt": text, "temperature": 0}, **sampling)


def test_it_is_a_generator(generator: Generator) -> None:
    assert isinstance(generator, Generator)
    capacity = generator.capacity
    assert capacity.context_tokens <= capacity.blocks * capacity.block_tokens
    assert generator.memory_mb() >= 0


def test_each_sequence_ends_once_with_a_reason(generator: Generator) -> None:
    for done in run(generator, [greedy(generator, text) for text in TEXTS]):
        assert done.finish in ("stop", "length")
        assert 1 <= len(done.tokens) <= 12


def test_a_sequence_is_the_same_alone_and_in_company(generator: Generator) -> None:
    alone = [run(generator, [greedy(generator, text)])[0] for text in TEXTS]
    together = run(generator, [greedy(generator, text) for text in TEXTS])
    assert [one.tokens for one in together] == [one.tokens for one in alone]
    assert [one.text for one in together] == [one.text for one in alone]


def test_max_tokens_ends_a_sequence_by_length(generator: Generator) -> None:
    [done] = run(generator, [greedy(generator, TEXTS[0], max_tokens=2)])
    assert (len(done.tokens), done.finish) == (2, "length")


def test_a_preempted_sequence_goes_on_where_it_was(generator: Generator) -> None:
    one = greedy(generator, TEXTS[0])
    [whole] = run(generator, [one])
    cut = max(1, len(whole.tokens) // 2)
    again = Generated(tokens=list(whole.tokens[:cut]))
    [rest] = run(generator, [resumed(one, again.tokens)])
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


def test_an_abort_before_the_first_step_leaves_no_trace(generator: Generator) -> None:
    one = greedy(generator, TEXTS[0])
    generator.add(one)
    generator.abort(one.id)
    assert not generator.step(64).emitted


def test_nothing_to_do_is_an_empty_step(generator: Generator) -> None:
    step = generator.step(64)
    assert (step.emitted, step.sequences, step.prefill_tokens) == ((), 0, 0)


def test_a_prompt_is_prefilled_in_chunks(generator: Generator) -> None:
    steps: list[Any] = []
    one = greedy(generator, "seven eight nine ten " * 5)
    size = one.prompt.size
    assert size > 8
    run(generator, [one], prefill=8, steps=steps)
    assert all(step.prefill_tokens <= 8 for step in steps)
    assert sum(step.prefill_tokens for step in steps) == size


def test_no_prefill_is_computed_where_none_is_allowed(generator: Generator) -> None:
    one = greedy(generator, TEXTS[0])
    generator.add(one)
    assert generator.step(0).sequences == 0
    generator.abort(one.id)


def test_a_whole_prompt_is_computed_once_for_sequences_that_share_it(generator: Generator) -> None:
    prompt = prepared(generator, {"prompt": TEXTS[2] + "again", "temperature": 0})
    steps: list[Any] = []
    ones = [new_sequence(prompt, salt="three") for _ in range(3)]
    done = run(generator, ones, prefill=1000, steps=steps)
    assert len({tuple(one.tokens) for one in done}) == 1
    assert sum(step.prefill_tokens for step in steps) < 2 * prompt.size
    assert [one.cached > 0 for one in done] == [False, True, True]


def test_sequences_of_other_salts_share_nothing(generator: Generator) -> None:
    prompt = prepared(generator, {"prompt": TEXTS[2] + "once more", "temperature": 0})
    first, same, other = (new_sequence(prompt, salt=salt) for salt in ("a", "a", "b"))
    assert run(generator, [first])[0].cached == 0
    assert run(generator, [same])[0].cached > 0
    assert run(generator, [other])[0].cached == 0


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
        {"prompt": ""},
        {"prompt": []},
        {"prompt": [10**9]},
        {"prompt": [-1]},
        {"prompt": "word " * 100_000},
        {"prompt": "\ud800"},
        {"prompt": "a", "temperature": -1},
        {"prompt": "a", "max_tokens": 0},
        {"prompt": "a", "logit_bias": {"1000000000": 1}},
        {"messages": []},
    ],
)
def test_what_could_harm_it_is_refused_in_its_place(generator: Generator, value: Any) -> None:
    first, refused, last = generator.prepare([{"prompt": "a"}, value, {"prompt": "b"}])
    assert isinstance(first, Prompt)
    assert isinstance(refused, InvalidInput)
    assert isinstance(last, Prompt)


def test_it_serves_after_a_restart(generator: Generator) -> None:
    one = greedy(generator, TEXTS[0])
    [whole] = run(generator, [one])
    generator.add(resumed(one, whole.tokens[:1]))
    generator.restart()
    assert not generator.step(64).emitted
    [rest] = run(generator, [resumed(one, whole.tokens[:1])])
    assert rest.tokens == whole.tokens[1:]
