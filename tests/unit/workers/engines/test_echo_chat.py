"""Engine that answers with the words of the prompt."""

from typing import Any
from zlib import crc32

import pytest

from jobs.models.engines.builtin_engines import ENGINES
from jobs.models.model import Model
from tests.support.cases import each
from workers.engines import registry
from workers.engines.echo_chat import EchoChat
from workers.engines.generator import Emitted, NewSequence, Prompt
from workers.engines.protocol import InvalidInput


def prompt(engine: EchoChat, value: Any) -> Prompt:
    [prepared] = engine.prepare([value])
    return prepared


def asked(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


def added(engine: EchoChat, id: str, value: Any, emitted: tuple[int, ...] = ()) -> None:
    its = prompt(engine, value)
    engine.add(NewSequence(id, its, its.request.sampling, emitted))


def ran(engine: EchoChat, steps: int = 50, prefill: int = 1000) -> list[Emitted]:
    """Runs some steps; returns what they emitted."""
    return [one for _ in range(steps) for one in engine.step(prefill).emitted]


def text(emitted: list[Emitted]) -> str:
    return "".join(one.text for one in emitted)


def test_the_registry_makes_one_that_generates() -> None:
    model = Model("talk", "1", "echo_chat", options={"blocks": 600})
    engine = registry.load(model, "cpu")
    assert isinstance(engine, EchoChat)
    assert engine.capacity.blocks == 600
    assert ENGINES["echo_chat"].generates
    with pytest.raises(ValueError, match="has no launches"):
        registry.load_engine(model, "cpu")


def test_words_come_one_a_step_until_the_last_says_why_it_ended() -> None:
    engine = EchoChat()
    added(engine, "a", asked("one two three"))
    emitted = ran(engine)
    assert [one.text for one in emitted] == ["one", " two", " three"]
    assert [one.finish for one in emitted] == [None, None, "stop"]
    assert not engine.step(100).emitted
    added(engine, "short", asked("one two three", max_tokens=2))
    assert ran(engine)[-1].finish == "length"
    added(engine, "long", asked("one two", min_tokens=5))
    assert text(ran(engine)) == "one two one two one"
    added(engine, "b", asked("one", logprobs=True, top_logprobs=1))
    [only] = ran(engine)
    assert [(one.text, one.logprob) for one in only.logprobs] == [("one", 0.0)]


def test_a_stop_string_is_held_back_until_it_cant_match() -> None:
    engine = EchoChat()
    added(engine, "a", asked("go on to the end", stop="on to the end!"))
    whole = ran(engine)
    assert (text(whole), whole[-1].stopped_by) == ("go on to the end", None)
    added(engine, "b", asked("go on to the end", stop=["end", "to the"]))
    emitted = ran(engine)
    assert [one.text for one in emitted] == ["go", " on", " ", ""]
    assert (emitted[-1].finish, emitted[-1].stopped_by) == ("stop", "to the")


def test_what_ends_a_sequence_may_be_a_token_or_ignored_and_part_of_the_text() -> None:
    engine = EchoChat()
    cases = [
        ({"ignore_eos": True, "max_tokens": 5}, "go on to go on", "length"),
        ({"stop_token_ids": [crc32(b" on") % 2**31]}, "go", "stop"),
        ({"stop_token_ids": [crc32(b" on") % 2**31], "include_stop_str_in_output": True},
         "go on", "stop"),
        ({"truncate_prompt_tokens": 2}, "on to", "stop"),
        ({"truncate_prompt_tokens": -1, "max_tokens": 1 << 20}, "go on to", "stop"),
        ({"stop": "n", "include_stop_str_in_output": True}, "go on", "stop"),
    ]  # fmt: skip
    for (fields, expected, finish), case in each(cases):
        with case:
            added(engine, "a", asked("go on to", **fields))
            emitted = ran(engine)
            assert (text(emitted), emitted[-1].finish) == (expected, finish)


def test_a_sequence_that_is_added_again_goes_on_where_it_was() -> None:
    engine = EchoChat()
    value = asked("go on to the end", stop="to that")
    added(engine, "a", value)
    before = ran(engine, steps=3)
    engine.abort("a")
    added(engine, "a", value, tuple(token for one in before for token in one.tokens))
    assert text(before) == "go on "
    assert text(ran(engine)) == "to the end"


def test_a_long_prompt_is_prefilled_in_pieces() -> None:
    engine = EchoChat()
    added(engine, "a", asked("a word " * 10))
    steps = [engine.step(8) for _ in range(3)]
    assert [step.prefill_tokens for step in steps] == [8, 8, 4]
    assert [len(step.emitted) for step in steps] == [0, 0, 1]


def test_blocks_and_places_are_held_until_the_end_or_an_abort() -> None:
    engine = EchoChat(blocks=10, block_tokens=2, context_tokens=20)
    added(engine, "a", asked("one two three"))
    assert engine.step(100).free_blocks == 8
    engine.abort("a")
    assert engine.step(100).free_blocks == 10
    added(engine, "b", asked("one"))
    assert engine.step(100).free_blocks == 10
    engine = EchoChat(sequences=1)
    added(engine, "a", asked("one"))
    added(engine, "b", asked("two"))
    assert [one.id for one in ran(engine)] == ["a", "b"]
    engine = EchoChat(blocks=1, block_tokens=4, context_tokens=8)
    added(engine, "a", asked("one two three four"))
    added(engine, "b", asked("five"))
    assert text(ran(engine, steps=3)) == "one"


def test_an_input_that_cant_run_is_refused_and_an_id_twice_is_an_error() -> None:
    wrong = [asked(""), {"prompt": " "}, asked("a " * 20), asked("a", temperature=-1)]
    wrong += [asked("a", logit_bias={str(1 << 31): 1}), asked("a", regex="a")]
    engine = EchoChat(context_tokens=20)
    for value, case in each(wrong):
        with case:
            assert isinstance(engine.prepare([value])[0], InvalidInput)
    added(engine, "a", asked("one"))
    with pytest.raises(ValueError, match="there already"):
        added(engine, "a", asked("one"))
