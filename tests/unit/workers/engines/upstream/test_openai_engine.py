"""The engine `openai` against a real server that speaks as vLLM, SGLang and TEI do."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pytest

from jobs.models.adapters import Adapter
from jobs.models.model import Model
from tests.support.cases import each
from tests.support.servers.receiver import Received
from tests.support.servers.upstream import Answer, Upstream
from workers.device import bisection
from workers.engines.protocol import Adapted, InvalidInput, Metered, Permanent, Prepared, Transient
from workers.engines.upstream.openai_engine import OpenAIEngine

CHAT = {"messages": [{"role": "user", "content": "hello there"}], "temperature": 0}
COMPLETION = {"choices": [{"message": {"content": "hi"}}], "usage": {"total_tokens": 31}}

EngineOf = Callable[..., OpenAIEngine]


@pytest.fixture
def engine_of(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineOf]:
    monkeypatch.setenv("THE_KEY", "sk-1")
    usual = {"url": f"{upstream.url}/v1", "model": "theirs", "api_key": "env:THE_KEY"}
    with ExitStack() as stack:

        def make(task: Any, **options: Any) -> OpenAIEngine:
            made = OpenAIEngine(Model("ours", "1", "openai", task=task, options=usual | options))
            return stack.enter_context(closing(made))

        yield make


def prepared(engine: OpenAIEngine, inputs: Sequence[Any]) -> list[Any]:
    return [one.data for one in engine.prepare(inputs, {})]


def run(engine: OpenAIEngine, *inputs: Any) -> Sequence[Any]:
    return engine.run(prepared(engine, inputs), {})


def embeddings(request: Received) -> Answer:
    """Of [length, 1.5] each, in another order; refuses empty texts as OpenAI does."""
    asked = json.loads(request.body)
    if "" in asked["input"]:
        return Answer({"error": {"message": "'' is not allowed"}}, 400)
    vectors: list[Any] = [np.array([len(value), 1.5], "<f4") for value in asked["input"]]
    if asked["encoding_format"] == "base64":
        vectors = [b64encode(vector.tobytes()).decode() for vector in vectors]
    else:
        vectors = [vector.tolist() for vector in vectors]
    data = [{"index": n, "embedding": vector} for n, vector in enumerate(vectors)]
    tokens = sum(len(value) for value in asked["input"])
    return Answer({"data": data[::-1], "usage": {"total_tokens": tokens}})


def test_a_conversation_is_sent_as_it_is_and_its_completion_comes_back_metered(
    engine_of: EngineOf, upstream: Upstream
) -> None:
    upstream.answer = lambda request: Answer(COMPLETION)
    engine = engine_of("chat")
    assert run(engine, CHAT) == [Metered(COMPLETION, 31)]
    (request,) = upstream.received
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer sk-1"
    assert json.loads(request.body) == {**CHAT, "model": "theirs", "stream": False}
    counted = COMPLETION | {"usage": {"prompt_tokens": 120, "completion_tokens": 80}}
    upstream.answer = lambda request: Answer(counted)
    assert run(engine, CHAT) == [Metered(counted, 200)]
    upstream.answer = lambda request: Answer({"object": "something"})
    (output,) = run(engine, CHAT)
    assert isinstance(output, Permanent)


def test_what_is_no_conversation_or_neither_text_nor_tokens_is_refused(engine_of: EngineOf) -> None:
    no_chats = ["text", {}, {"messages": []}, {"messages": "hi"}, CHAT | {"model": "x"}]
    no_texts = [{}, [], [["a"]], [True], ["text"], None, 3]
    for task, good, bad in (
        ("chat", CHAT, [*no_chats, CHAT | {"stream": 1}]),
        ("embedding", "a", no_texts),
    ):
        found = engine_of(task).prepare([good, *bad], {})
        assert [type(one) for one in found] == [Prepared, *[InvalidInput] * len(bad)]


@pytest.mark.parametrize("encoding", ["base64", "float"])
def test_a_launch_of_texts_is_one_request_and_each_gets_its_own_vector(
    engine_of: EngineOf, upstream: Upstream, encoding: str
) -> None:
    upstream.answer = embeddings
    engine = engine_of("embedding", encoding_format=encoding)
    batch = prepared(engine, ["a", "bbb", [5, 6, 7, 8]])
    outputs = engine.run(batch, {"dimensions": 2})
    assert [output.output.tolist() for output in outputs] == [[1, 1.5], [3, 1.5], [4, 1.5]]
    assert [output.size for output in outputs] == [1, 3, 4]
    assert upstream.bodies() == [
        {"model": "theirs", "input": batch, "encoding_format": encoding, "dimensions": 2}
    ]


def test_the_guilty_one_of_a_batch_fails_alone_and_with_its_own_reason(
    engine_of: EngineOf, upstream: Upstream
) -> None:
    upstream.answer = embeddings
    engine = engine_of("embedding")
    outputs = bisection.run(engine.run, prepared(engine, ["a", "bb", "", "dddd"]), {})
    assert [type(output) for output in outputs] == [Metered, Metered, InvalidInput, Metered]
    assert str(outputs[2]) == "upstream answered 400: '' is not allowed"


def test_what_an_upstream_says_of_several_is_told_to_none(
    engine_of: EngineOf, upstream: Upstream
) -> None:
    upstream.answer = lambda request: Answer("can't do bb, which is Bob's", 500)
    engine = engine_of("embedding")
    outputs = bisection.run(engine.run, prepared(engine, ["a", "bb"]), {})
    assert [str(output) for output in outputs] == ["upstream answered 500"] * 2
    assert len(upstream.received) == 1, "a sick upstream is not asked again for halves"
    assert isinstance(outputs[0], Transient)


def vectors(*embeddings: Any) -> dict[str, Any]:
    return {"data": [{"index": n, "embedding": its} for n, its in enumerate(embeddings)]}


def test_what_are_no_vectors_for_each_input_fails_the_launch(
    engine_of: EngineOf, upstream: Upstream
) -> None:
    engine = engine_of("embedding")
    three = vectors([1], [1], [1])["data"]
    others = [{"data": three[:1] * 2}, {"data": three[::2]}, {"data": 7}, []]
    of_two = [vectors(one, [1]) for one in ("AAAA", ["x"], [[1]], None)]
    for answer, case in each([vectors(), *of_two, *others]):
        with case:
            upstream.answer = lambda request, answer=answer: Answer(answer)
            assert [type(output) for output in run(engine, "a", "b")] == [Permanent] * 2


def test_the_tokens_of_a_request_are_shared_out_without_rest(
    engine_of: EngineOf, upstream: Upstream
) -> None:
    def answer(request: Received) -> Answer:
        found = embeddings(request)
        found.value["usage"] = {"total_tokens": 10}
        return found

    upstream.answer = answer
    outputs = run(engine_of("embedding"), "aa", "aa", "aa")
    assert sum(output.size for output in outputs) == 10


def test_an_adapter_is_the_model_of_the_request(engine_of: EngineOf, upstream: Upstream) -> None:
    upstream.answer = lambda request: Answer(COMPLETION)
    engine = engine_of("chat")
    plain, adapted = prepared(engine, [CHAT, CHAT])
    legal = engine.loaded_adapter(Adapter("legal"))
    engine.run([plain, Adapted(adapted, legal)], {})
    assert [json.loads(one.body)["model"] for one in upstream.received] == ["theirs", "legal"]


def test_texts_of_different_adapters_are_requests_of_their_own_in_order(
    engine_of: EngineOf, upstream: Upstream
) -> None:
    upstream.answer = embeddings
    engine = engine_of("embedding")
    texts = prepared(engine, ["a", "bb", "ccc"])
    legal = engine.load_adapter(Adapter("legal"))
    outputs = engine.run([texts[0], Adapted(texts[1], legal), texts[2]], {})
    assert [one.output[0] for one in outputs] == [1, 2, 3]
    asked = [json.loads(one.body) for one in upstream.received]
    assert [(one["model"], one["input"]) for one in asked] == [
        ("theirs", ["a", "ccc"]),
        ("legal", ["bb"]),
    ]
