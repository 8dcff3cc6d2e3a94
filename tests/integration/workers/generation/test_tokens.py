"""Calls that ask a host for tokens, not for a text."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from jobs.calls.messages import COUNTED, TOLD
from jobs.models.inputs.generation import GenerationRequest
from tests.integration.workers.generation.host_bench import Bench, Echo
from workers.engines.generator import Tokenized
from workers.generation.calls.tokens import MOST_WAITING


class Slow(Echo):
    """Its tokens wait."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.asked, self.told = threading.Event(), threading.Event()

    def tokenize(self, request: GenerationRequest) -> Tokenized:
        self.asked.set()
        self.told.wait()
        return super().tokenize(request)


def asking(text: str, told: str = "tokens") -> dict[str, Any]:
    """Fields of a call's input: those of the bench tell a prompt by its name."""
    return {COUNTED: {"prompt": text}, TOLD: told, "prompt": ""}


def test_texts_are_generated_while_tokens_are_waited_for(started: Callable[..., Bench]) -> None:
    bench = started(kind=Slow)
    engine: Any = bench.engine
    bench.call("a", "", **asking("one two"))
    engine.asked.wait()
    bench.call("b", "three four")
    assert bench.texts("b") == ["three four"]
    assert "a" not in bench.replies
    engine.told.set()
    output, error, _ = bench.reply("a")
    assert error is None
    assert (len(output["tokens"]), output["max_model_len"]) == (2, 8192)


def test_calls_that_wait_for_tokens_are_bounded_and_end(started: Callable[..., Bench]) -> None:
    bench = started(kind=Slow)
    engine: Any = bench.engine
    for n in range(MOST_WAITING):
        bench.call(f"{n}", "", **asking("one"))
    bench.call("more", "", **asking("one"))
    assert bench.reply("more")[1][0] == "rate_limited"
    bench.host._calls.cancel([f"{MOST_WAITING - 1}"])  # noqa: SLF001
    engine.told.set()
    assert bench.reply("0")[1] is None
    assert bench.reply(f"{MOST_WAITING - 1}")[1][0] == "cancelled"


class Nul(Echo):
    """Its tokens hold NUL."""

    def tokenize(self, request: GenerationRequest) -> Tokenized:
        return Tokenized([0], ["\0"], 8)

    def detokenize(self, tokens: Sequence[int]) -> str:
        return "a\0"


def test_a_nul_is_told_as_it_is_generated(started: Callable[..., Bench]) -> None:
    bench = started(kind=Nul)
    bench.call("a", "", **asking("one", "token_strs"))
    bench.call("b", "", **{COUNTED: {"prompt": [0]}, TOLD: "text", "prompt": ""})
    assert bench.reply("a")[0]["token_strs"] == ["\ufffd"]
    assert bench.reply("b")[0] == {"prompt": "a\ufffd"}


def test_a_host_that_stops_tells_what_it_was_asked(hosted: Callable[..., Bench]) -> None:
    bench = hosted(kind=Slow)
    engine: Any = bench.engine
    bench.start()
    bench.call("a", "", **asking("one two"))
    bench.call("b", "", **asking("three", "token_strs"))
    engine.asked.wait()
    stopping = threading.Thread(target=bench.host.stop)
    stopping.start()
    engine.told.set()
    stopping.join()
    bench.drained()
    assert bench.replies["a"][0]["tokens"]


def test_an_engine_that_fails_ends_the_call_alone(started: Callable[..., Bench]) -> None:
    bench = started()
    bench.call("a", "", **asking("one", "text"))  # which are no ids
    bench.call("b", "", **asking(" "))
    for id, code in (("a", "engine_error"), ("b", "invalid_input")):
        output, error, _ = bench.reply(id)
        assert (output, error[0]) == (None, code)
    bench.call("c", "one")
    assert bench.texts("c") == ["one"]
