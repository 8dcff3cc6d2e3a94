"""Tokens of models of other servers, from a real HTTP server on loopback."""

from contextlib import closing
from typing import Any

import pytest

from jobs.models.inputs.generation import parse
from jobs.models.model import Model
from tests.support.cases import each
from tests.support.servers.upstream import Answer, Upstream
from workers.engines.protocol import InvalidInput, Transient
from workers.engines.upstream.streaming.openai_generator import OpenAIGenerator

VLLM = {"count": 2, "max_model_len": 4096, "tokens": [5, 6], "token_strs": ["a", "b"]}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SAID = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
]


def generator(server: Upstream) -> OpenAIGenerator:
    options = {"url": f"{server.url}/v1", "model": "theirs", "stream": True, "max_answer_mb": 1}
    return OpenAIGenerator(Model("ours", "1", "openai", options=options))


def test_the_server_is_asked_beside_its_api(upstream: Upstream) -> None:
    upstream.answer = lambda _: Answer(VLLM)
    template = {"add_generation_prompt": False, "chat_template_kwargs": {"a": 1}}
    with closing(generator(upstream)) as ours:
        for asked, case in each([
            {"prompt": "ab"}, {"prompt": "ab", "add_special_tokens": False},
            {"messages": SAID}, {"messages": SAID, **template, "add_special_tokens": True},
        ]):  # fmt: skip
            with case:
                found = ours.tokenize(parse(asked))
                assert (list(found.tokens), list(found.texts)) == ([5, 6], ["a", "b"])
                assert found.context_tokens == 4096
                assert upstream.received[-1].path == "/tokenize"
                sent = {**asked, "model": "theirs", "return_token_strs": True}
                assert upstream.bodies()[-1] == sent
        upstream.answer = lambda _: Answer({"prompt": "ab"})
        assert ours.detokenize([5, 6]) == "ab"
    assert upstream.received[-1].path == "/detokenize"
    assert upstream.bodies()[-1] == {"model": "theirs", "tokens": [5, 6]}


@pytest.mark.parametrize(
    "answer",
    [
        Answer({"detail": "Not Found"}, status=404),
        Answer({"detail": "Method Not Allowed"}, status=405),
        Answer({"tokens": []}),  # as llama-server's, which reads `content`
        Answer({**VLLM, "tokens": ["a", "b"]}),
        Answer([5, 6]),
        Answer(raw=b"<html>"),
        Answer(raw=b" " * (2 << 20)),
    ],
)
def test_a_server_without_such_routes_is_named(upstream: Upstream, answer: Answer) -> None:
    upstream.answer = lambda _: answer
    with closing(generator(upstream)) as ours:
        asks: list[Any] = [
            ("/tokenize", lambda: ours.tokenize(parse({"prompt": "ab"}))),
            ("/detokenize", lambda: ours.detokenize([5])),
        ]
        for path, ask in asks:
            with pytest.raises(InvalidInput, match=f"server of ours@1 has no {path} as vLLM's"):
                ask()


def test_a_tokenizer_that_fails_leaves_the_room_of_chats(upstream: Upstream) -> None:
    upstream.answer = lambda _: Answer({}, status=500)
    with closing(generator(upstream)) as ours:
        room = ours.capacity.sequences
        for _ in range(20):
            with pytest.raises(Transient, match="500"):
                ours.detokenize([7])
        assert ours.capacity.sequences == room
    assert len(upstream.received) == 20


def test_what_the_server_refuses_or_fails_is_told(upstream: Upstream) -> None:
    refusal = {"error": {"message": "token 7 is unknown"}}
    for status, kind in ((400, InvalidInput), (500, Transient)):
        upstream.answer = lambda _, status=status: Answer(refusal, status=status)  # type: ignore[misc]
        with closing(generator(upstream)) as ours, pytest.raises(kind, match="token 7"):
            ours.detokenize([7])
