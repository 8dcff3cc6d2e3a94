"""Generated texts of a whole platform, as the packages of OpenAI and Anthropic and `millrace chat`
show them: api, Redis, worker and a model whose tokens are words."""

import asyncio
import json
import socket
from contextlib import ExitStack
from functools import partial
from typing import Any
from zlib import crc32

import anthropic
import httpx
import openai
import pytest
from anthropic import Anthropic
from openai import OpenAI

from millrace.sync.chat import Chats
from ops.supervisor.platform import Platform
from tests.support.cases import each
from tests.support.clients import events
from tests.support.command_line import run_millrace
from tests.support.extra_models import extra_models
from tests.support.models.entries import model
from tests.support.packages import anthropic_ended, openai_batch
from tests.support.platforms import CHATTING
from tests.support.wait import PATIENCE_S

QUICK = {"step_ms": 2.0, "sequences": 256}
SLOW = {"step_ms": 50.0, "sequences": 4, "blocks": 1024}
MODELS = model("chatter", "echo_chat", target_ttft_ms=60000, **QUICK)
MODELS += model("slow", "echo_chat", target_ttft_ms=60000, **SLOW)
PLATFORM = CHATTING
SAID = "one two three four five"
MESSAGES: list[Any] = [{"role": "user", "content": SAID}]


def text_of(chunks: Any) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def test_a_stream_says_what_the_whole_answer_says(chat: OpenAI) -> None:
    whole = chat.chat.completions.create(model="chatter", messages=MESSAGES)
    assert (whole.choices[0].message.content or "").split() == SAID.split()
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 5
    asked: Any = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(chat.chat.completions.create(model="chatter", messages=MESSAGES, **asked))
    assert text_of(chunks) == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage


def test_each_choice_is_streamed(chat: OpenAI) -> None:
    texts = {0: "", 1: "", 2: ""}
    for chunk in chat.chat.completions.create(model="chatter", messages=MESSAGES, n=3, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert [text.split() for text in texts.values()] == [SAID.split()] * 3


def test_completions_are_whole_and_streamed(chat: OpenAI) -> None:
    whole = chat.completions.create(model="chatter", prompt=SAID, max_tokens=3)
    assert whole.choices[0].finish_reason == "length"
    stream = chat.completions.create(model="chatter", prompt=SAID, max_tokens=3, stream=True)
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == "length"


def test_the_native_stream_ends_with_usage_and_timing(http: httpx.Client) -> None:
    body = {"model": "chatter", "stream": True, "input": {"messages": MESSAGES}}
    *deltas, done = events(http.post("/infer", json=body).text.splitlines())
    assert done.name == "done"
    assert done.data["usage"]["completion_tokens"] == 5
    timing = done.data["timing"]
    assert {"ttft_ms", "itl_ms", "queue_ms", "prefill_ms", "decode_ms"} <= timing.keys()
    assert timing["deltas"] == len(deltas)


def test_two_hundred_streams_at_once_each_get_their_own_text(platform: Platform, key: str) -> None:
    async def ask(client: openai.AsyncOpenAI, n: int) -> str:
        said = f"stream {n} has its own words " + " ".join(f"w{n}-{m}" for m in range(20))
        stream = await client.chat.completions.create(
            model="chatter", messages=[{"role": "user", "content": said}], stream=True
        )
        parts = [c.delta.content or "" async for chunk in stream for c in chunk.choices]
        assert "".join(parts).split() == said.split()
        return said

    async def ask_all() -> int:
        limits = httpx.Limits(max_connections=200)
        http = httpx.AsyncClient(limits=limits, timeout=PATIENCE_S)
        async with openai.AsyncOpenAI(
            base_url=f"{platform.url}/v1", api_key=key, max_retries=0, http_client=http
        ) as client:
            return len(set(await asyncio.gather(*(ask(client, n) for n in range(200)))))

    assert asyncio.run(ask_all()) == 200


@pytest.mark.parametrize("half", [False, True], ids=["closed", "half-closed"])
def test_clients_that_leave_make_room_for_others(
    platform: Platform, key: str, chat: OpenAI, half: bool
) -> None:
    """Those who leave would hold every place of the model for longer than others wait."""
    body = {"model": "slow", "messages": MESSAGES, "min_tokens": 4000, "max_tokens": 4000}
    raw = json.dumps({**body, "stream": True}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
    )
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(platform)) for _ in range(4)]
        for client in clients:
            client.sendall(head.encode() + raw)
        for client in clients:
            assert b"200 OK" in client.recv(1 << 16)
        for client in clients:
            client.shutdown(socket.SHUT_WR) if half else client.close()
        patient = chat.with_options(timeout=PATIENCE_S)
        answer = patient.chat.completions.create(model="slow", messages=MESSAGES)
        assert (answer.choices[0].message.content or "").split() == SAID.split()


def connected(platform: Platform) -> socket.socket:
    address = platform.settings.host, platform.settings.port
    return socket.create_connection(address, timeout=PATIENCE_S)


def test_a_message_names_the_stop_sequence_that_ended_it(claude: Anthropic) -> None:
    asked: Any = {"model": "chatter", "max_tokens": 50, "messages": MESSAGES}
    asked["stop_sequences"] = ["nothing", " four"]
    whole = claude.messages.create(**asked)
    with claude.messages.stream(**asked) as stream:
        start = next(iter(stream))
        assert (start.type, start.message.usage.input_tokens) == ("message_start", 5)
        assert "".join(stream.text_stream) == "one two three"
        streamed = stream.get_final_message()
    for message in (whole, streamed, batched(claude, asked)):
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " four")
        assert message.content[0].text == "one two three"
    asked["stop_sequences"] = ["nothing"]
    for message in (claude.messages.create(**asked), batched(claude, asked)):
        assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
        assert message.usage.output_tokens == 5


def batched(claude: Anthropic, params: Any) -> Any:
    """The message that is the answer to the only request of a batch."""
    batch = claude.messages.batches.create(requests=[{"custom_id": "a", "params": params}])
    anthropic_ended(claude, batch.id)
    [line] = claude.messages.batches.results(batch.id)
    assert line.result.type == "succeeded"
    return line.result.message


def test_a_choice_names_the_stop_string_that_ended_it(chat: OpenAI) -> None:
    asked: Any = {"model": "chatter", "messages": MESSAGES, "stop": [" four"]}
    whole = chat.chat.completions.create(**asked).choices[0]
    chunks = list(chat.chat.completions.create(**asked, stream=True))
    *_, text = chat.completions.create(model="chatter", prompt=SAID, stop=" four", stream=True)
    for choice in (whole, chunks[-1].choices[0], text.choices[0]):
        assert choice.finish_reason == "stop"
        assert choice.model_extra == {"stop_reason": " four"}


def test_a_stop_token_ends_a_choice_and_is_named(chat: OpenAI) -> None:
    token = crc32(b" three") % 2**31  # of the engine
    asked: Any = {"model": "chatter", "messages": MESSAGES}
    asked["extra_body"] = {"stop_token_ids": [token]}
    whole = chat.chat.completions.create(**asked).choices[0]
    chunks = list(chat.chat.completions.create(**asked, stream=True))
    assert whole.message.content == "".join(one.choices[0].delta.content or "" for one in chunks)
    assert whole.message.content == SAID.partition(" three")[0]
    for choice in (whole, chunks[-1].choices[0]):
        assert choice.finish_reason == "stop"
        assert choice.model_extra == {"stop_reason": token}


@pytest.mark.parametrize(
    "more",
    [
        {"messages": MESSAGES},
        {"messages": MESSAGES, "system": "Be brief. " * 8000},  # a large body
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "one two"}]},
                {"role": "assistant", "content": "three"},
                {"role": "user", "content": "four five six seven"},
            ]
        },
    ],
)
def test_counted_tokens_are_those_of_the_message(claude: Anthropic, more: dict[str, Any]) -> None:
    counted = claude.messages.count_tokens(model="chatter", **more)
    message = claude.messages.create(model="chatter", max_tokens=2, **more)
    assert counted.input_tokens == message.usage.input_tokens > 0


VLLMS = (
    "This model's maximum context length is 8192 tokens. However, you requested 900{1} tokens "
    "({0} in the messages, {1} in the completion). "
    "Please reduce the length of the messages or completion."
)


def test_a_prompt_that_is_too_long_is_told_as_usual(claude: Anthropic, chat: OpenAI) -> None:
    """LiteLLM and LangChain read these words, and go to a model with more room."""
    messages: Any = [{"role": "user", "content": "word " * 9000}]
    create: Any = chat.chat.completions.create
    asks: list[Any] = [claude.messages.count_tokens, create, partial(create, stream=True)]
    refusals = (anthropic.BadRequestError, openai.BadRequestError)
    for ask, case in each(asks):
        with case, pytest.raises(refusals, match=r"^[^;]*prompt is too long: ") as raised:
            ask(model="chatter", messages=messages)
        assert VLLMS.format(9000, 1) in raised.value.message
    for refused, case in each([
        partial(create, model="chatter", messages=messages, max_tokens=5),
        partial(chat.completions.create, model="chatter", prompt="word " * 9000, max_tokens=5),
        partial(chat.responses.create, model="chatter", input=messages, max_output_tokens=5),
    ]):  # fmt: skip
        with case, pytest.raises(openai.BadRequestError) as told:
            refused()
        assert told.value.code == "context_length_exceeded"
        assert VLLMS.format(9000, 5) in told.value.message


def test_no_clients_input_asks_for_a_count(http: httpx.Client) -> None:
    body = {"model": "chatter", "input": {"count_tokens": {"messages": MESSAGES}}}
    assert http.post("/infer", json=body).status_code == 422


PROMPTS = ["one two three", "four five", "six"]


def joined(chunks: Any) -> dict[int, str]:
    texts: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
    return texts


@pytest.mark.parametrize("prompts", [PROMPTS, [[1, 2, 3], [4, 5], [6]]], ids=["texts", "tokens"])
def test_choices_of_several_prompts_have_their_order(chat: OpenAI, prompts: Any) -> None:
    asked: Any = {"model": "chatter", "n": 2, "max_tokens": 9, "echo": True}
    alone = [chat.completions.create(prompt=prompt, **asked) for prompt in prompts]
    whole = chat.completions.create(prompt=prompts, **asked)
    assert [choice.index for choice in whole.choices] == list(range(6))
    texts = [choice.text for one in alone for choice in one.choices]
    assert [choice.text for choice in whole.choices] == texts
    assert whole.usage is not None
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert getattr(whole.usage, name) == sum(getattr(one.usage, name) for one in alone)
    usage: Any = {"stream": True, "stream_options": {"include_usage": True}}
    chunks: Any = list(chat.completions.create(prompt=prompts, **asked, **usage))
    assert joined(chunks) == dict(enumerate(texts))
    assert (chunks[-1].choices, chunks[-1].usage) == ([], whole.usage)
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_lines_of_batches_may_be_conversations_or_several_prompts(chat: OpenAI) -> None:
    def choices(endpoint: str, **body: Any) -> Any:
        [line], _ = openai_batch(chat, endpoint, {"model": "chatter", **body})
        return line["response"]["body"]["choices"]

    assert [one["text"] for one in choices("/v1/completions", prompt=PROMPTS)] == PROMPTS
    [said] = choices("/v1/chat/completions", messages=MESSAGES)
    assert said["message"]["content"].split() == SAID.split()


@pytest.mark.parametrize("echo", [False, True])
def test_each_token_is_at_its_offset(chat: OpenAI, echo: bool) -> None:
    """Also those whose text is held back, since it may become the stop string."""
    asked: Any = {"model": "chatter", "prompt": SAID, "logprobs": 0, "echo": echo}
    asked["stop"] = " two three nine"
    whole = chat.completions.create(**asked).choices[0]
    chunks = list(chat.completions.create(**asked, stream=True))
    parts = [chunk.choices[0].logprobs for chunk in chunks if chunk.choices[0].logprobs]
    streamed = [
        (token, at)
        for one in parts
        for token, at in zip(one.tokens, one.text_offset, strict=True)  # type: ignore[arg-type]
    ]
    assert whole.logprobs is not None
    found = list(zip(whole.logprobs.tokens, whole.logprobs.text_offset, strict=True))  # type: ignore[arg-type]
    assert streamed == found
    assert len(found) == (10 if echo else 5)
    assert whole.text == (SAID if echo else "") + SAID
    assert all(whole.text[at:].startswith(token) for token, at in found)
    assert found[0][1] == 0
    assert (whole.logprobs.token_logprobs or [])[0] == (None if echo else 0.0)


@pytest.mark.parametrize("prompts", [PROMPTS, [[1, 2, 3], [4, 5], [6]]], ids=["texts", "tokens"])
def test_prompts_are_scored_whole_in_streams_and_in_batches(chat: OpenAI, prompts: Any) -> None:
    asked: Any = {"model": "chatter", "prompt": prompts, "max_tokens": 0}
    asked |= {"echo": True, "logprobs": 1}
    more: Any = {"extra_body": {"prompt_logprobs": 0}}
    whole = chat.completions.create(**asked, **more)
    texts = [choice.text for choice in whole.choices]
    for choice in whole.choices:
        assert choice.finish_reason == "length"
        assert choice.logprobs is not None
        assert "".join(choice.logprobs.tokens or ()) == choice.text
        assert (choice.logprobs.token_logprobs or ())[:2] in ([None, 0.0], [None])
        [first, *listed] = choice.prompt_logprobs  # type: ignore[attr-defined]
        assert first is None
        words = [its["decoded_token"] for one in listed for its in one.values()]
        assert choice.text.split(" ")[0] + "".join(words) == choice.text
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (6, 0)
    chunks: Any = list(chat.completions.create(**asked, **more, stream=True))
    assert joined(chunks) == dict(enumerate(texts))
    seen = {c.index: c.logprobs for chunk in chunks for c in chunk.choices if c.logprobs}
    assert [seen[n] for n in range(3)] == [choice.logprobs for choice in whole.choices]
    [line], _ = openai_batch(chat, "/v1/completions", {**asked, "prompt_logprobs": 0})
    assert line["response"]["body"]["choices"] == [one.model_dump() for one in whole.choices]


def test_a_chat_lists_its_prompt_where_vllm_does(http: httpx.Client) -> None:
    body = {"model": "chatter", "messages": MESSAGES, "prompt_logprobs": 1}
    answer = http.post("/v1/chat/completions", json=body).json()
    first, *others = answer["prompt_logprobs"]
    assert first is None
    assert all(next(iter(one.values()))["rank"] == 1 for one in others)
    assert len(others) + 1 == answer["usage"]["prompt_tokens"]


def ids_of(text: str) -> list[int]:
    """Ids of the tokens that the model makes of a text: of each word, with the blank before it."""
    first, *others = text.split()
    return [crc32(word.encode()) % (1 << 31) for word in (first, *(f" {one}" for one in others))]


NAMED = {"logprobs": 1, "return_tokens_as_token_ids": True}


@pytest.mark.parametrize("asked", [{}, {"n": 2}, {"stop": [" four"]}, {"logprobs": 1}, NAMED])
def test_token_ids_are_told_whole_in_streams_and_in_batches(
    chat: OpenAI, http: httpx.Client, asked: Any
) -> None:
    asked = {"model": "chatter", "prompt": [SAID, "six"], "return_token_ids": True, **asked}
    whole = http.post("/v1/completions", json=asked).json()["choices"]
    expected = [ids_of(SAID)[: 4 if "stop" in asked else 5], ids_of("six")]
    prompts = [[crc32(w.encode()) % (1 << 31) for w in SAID.split()], ids_of("six")]
    n = asked.get("n", 1)
    assert [one["token_ids"] for one in whole] == [ids for ids in expected for _ in range(n)]
    assert [one["prompt_token_ids"] for one in whole] == [ids for ids in prompts for _ in range(n)]
    with http.stream("POST", "/v1/completions", json={**asked, "stream": True}) as response:
        chunks = [one.data["choices"][0] for one in events(response.iter_lines()) if one.data]
    if asked.keys() >= NAMED.keys():
        assert whole[0]["logprobs"]["tokens"] == [f"token_id:{one}" for one in ids_of(SAID)]
    for choice in whole:
        its = [one for one in chunks if one["index"] == choice["index"]]
        assert [token for one in its for token in one["token_ids"]] == choice["token_ids"]
        assert its[0]["prompt_token_ids"] == choice["prompt_token_ids"]
        assert not any("prompt_token_ids" in one for one in its[1:])
    [line], _ = openai_batch(chat, "/v1/completions", asked)
    assert line["response"]["body"]["choices"] == whole


def test_a_chat_has_the_ids_of_its_prompt_beside_its_choices(http: httpx.Client) -> None:
    body = {"model": "chatter", "messages": MESSAGES, "return_token_ids": True, "n": 2}
    answer = http.post("/v1/chat/completions", json=body).json()
    prompt = http.post("/tokenize", json={"model": "chatter", "messages": MESSAGES}).json()
    assert answer["prompt_token_ids"] == prompt["tokens"]
    assert [one["token_ids"] for one in answer["choices"]] == [ids_of(SAID)] * 2
    many = {**body, "messages": [{"role": "user", "content": "word " * 8000}], "n": 128}
    refused = http.post("/v1/chat/completions", json=many)
    assert refused.status_code == 400
    assert "return_token_ids: 8000 tokens" in refused.json()["error"]["message"]


WEATHER = {"type": "function", "function": {"name": "weather"}}


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"tools": [WEATHER], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": WEATHER}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"extra_body": {"choice": ["a", "b"]}}, "choice"),
    ],
)
def test_a_model_without_grammars_refuses_them_by_name(chat: OpenAI, more: Any, field: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat.chat.completions.create(model="chatter", messages=MESSAGES, **more)
    assert f"{field} isn't supported" in caught.value.message


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool", "name": "weather"}}, "tool_choice"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config"),
    ],
)
def test_anthropics_forms_of_them_are_refused_too(claude: Anthropic, more: Any, field: str) -> None:
    tools: Any = [{"name": "weather", "input_schema": {"type": "object"}}]
    body = {"model": "chatter", "max_tokens": 9, "messages": MESSAGES, "tools": tools, **more}
    with pytest.raises(anthropic.BadRequestError, match=field):
        claude.post("/v1/messages", body=body, cast_to=object)


@pytest.fixture(scope="module")
def environ(platform: Platform, key: str) -> dict[str, str]:
    return {"MILLRACE_URL": platform.url, "MILLRACE_API_KEY": key}


def typed_in(environ: dict[str, Any], *arguments: str, typed: str = "", status: int = 0) -> str:
    return run_millrace("chat", *arguments, input=typed.encode(), status=status, **environ).output


def test_one_message_gets_one_answer_or_is_reported(environ: dict[str, str]) -> None:
    assert typed_in(environ, "chatter", SAID).split() == SAID.split()
    assert "nobody" in typed_in(environ, "nobody", "x", status=1)


def test_each_line_is_a_message_of_one_conversation(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def stream(chats: Chats, model: str, messages: Any, **fields: Any) -> Any:
        asked.append([message["content"].strip() for message in messages])
        return right(chats, model, messages, **fields)

    right = Chats.stream
    monkeypatch.setattr(Chats, "stream", stream)
    typed_in(environ, "chatter", "--system", "Be kind.", typed="one\n\ntwo\n")
    assert asked == [["Be kind.", "one"], ["Be kind.", "one", "one", "two"]]


def test_it_waits_for_a_model_on_demand(platform: Platform, environ: dict[str, str]) -> None:
    with extra_models(platform, model("sleeper", "echo_chat", on_demand=True)):
        said = typed_in(environ, "sleeper", "wake up")
    assert "no worker is ready" in said
    assert said.strip().endswith("wake up")
