"""Generator that streams chats from a real HTTP server on loopback."""

import json
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from jobs.models.inputs.generation import TokenUsage
from jobs.models.inputs.tool_calls import ToolCallParser
from jobs.models.model import Model
from tests.support.servers.receiver import Received
from tests.support.servers.upstream import Answer, Upstream
from tests.support.wait import eventually
from workers.engines.generator import Emitted, Generator, NewSequence, Prompt
from workers.engines.protocol import InvalidInput, Permanent, RateLimited, Room, Transient
from workers.engines.upstream.streaming.chat_stream import UNKNOWN_TOKEN
from workers.engines.upstream.streaming.openai_generator import OpenAIGenerator

TOOL = {"type": "function", "function": {"name": "weather", "strict": True}}
JSON = {"type": "json_object"}
CHAT = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0}


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def sse(*chunks: Any) -> bytes:
    events = [json.dumps(each) for each in chunks] + ["[DONE]"]
    return b": comment\n\n" + b"".join(f"data: {event}\n\n".encode() for event in events)


def says(*chunks: Any) -> Answer:
    return Answer(raw=sse(*chunks), headers={"content-type": "text/event-stream"})


def hello(request: Received) -> Answer:
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": None}
    begin, more = chunk({"role": "assistant", "content": ""}), chunk({"content": " you"})
    end = chunk({}, "stop"), {"choices": [], "usage": usage}
    return says(begin, chunk({"content": "Hi"}), more, *end)


@pytest.fixture(autouse=True)
def _says_hello(upstream: Upstream) -> None:
    upstream.answer = hello


def generator(server: Upstream, **options: Any) -> OpenAIGenerator:
    given = {"url": f"{server.url}/v1", "model": "theirs", "stream": True, **options}
    return OpenAIGenerator(Model("ours", "1", "openai", options=given))


def new(of: Generator, id: str = "a", **fields: Any) -> NewSequence:
    [prompt] = of.prepare([{**CHAT, **fields}])
    assert isinstance(prompt, Prompt)
    return NewSequence(id, prompt, prompt.request.sampling, first=True)


def run(of: Generator, *sequences: NewSequence) -> dict[str, list[Emitted]]:
    for each in sequences:
        of.add(each)
    found: dict[str, list[Emitted]] = {each.id: [] for each in sequences}

    def ended() -> bool:
        for each in of.step(64).emitted:
            found[each.id].append(each)
        return all(its and (its[-1].finish or its[-1].error) for its in found.values())

    eventually(ended)
    return found


def going_on(of: Generator, *, text: str, tokens: int, **fields: Any) -> NewSequence:
    return replace(new(of, **fields), emitted=(UNKNOWN_TOKEN,) * tokens, text=text)


def test_a_text_begun_elsewhere_goes_on_with_the_rest_of_its_budget(upstream: Upstream) -> None:
    with closing(generator(upstream, continues=True)) as ours:
        assert ours.capacity.takes_over
        begun = going_on(ours, text="Oh, \n", tokens=2, max_tokens=5, min_tokens=2)
        found = run(ours, begun)["a"]
    sent = upstream.bodies()[-1]
    assert sent["messages"] == [*CHAT["messages"], {"role": "assistant", "content": "Oh,"}]
    assert (sent["continue_final_message"], sent["add_generation_prompt"]) == (True, False)
    assert (sent["max_tokens"], "min_tokens" in sent) == (3, False)
    assert "".join(each.text for each in found) == "Hi you"
    assert found[-1].usage == TokenUsage(7, 0, 5)


def test_white_space_that_was_emitted_does_not_come_again(upstream: Upstream) -> None:
    for spaced, rest in (("Hi", " you"), ("Hi ", "you"), ("Hi  ", "you")):
        upstream.answer = lambda _: says(
            chunk({"content": " "}), chunk({"content": "you"}), chunk({}, "stop")
        )
        with closing(generator(upstream, continues=True)) as ours:
            found = run(ours, going_on(ours, text=spaced, tokens=1))["a"]
        assert "".join(each.text for each in found) == rest


def test_a_text_that_a_grammar_binds_does_not_go_on(upstream: Upstream) -> None:
    with closing(generator(upstream, continues=True)) as ours:
        bound = going_on(ours, text="{", tokens=1, response_format=JSON)
        found = run(ours, bound)["a"]
    assert isinstance(found[-1].error, Permanent)


def test_a_text_does_not_go_on_where_the_server_would_cut_it_off(upstream: Upstream) -> None:
    cut = {"truncate_prompt_tokens": 5, "truncation_side": "right"}
    with closing(generator(upstream, continues=True)) as ours:
        found = run(ours, going_on(ours, text="Oh", tokens=1, **cut))["a"]
        assert isinstance(found[-1].error, Permanent)
        left = run(ours, going_on(ours, text="Oh", tokens=1, **cut | {"truncation_side": "left"}))
    assert left["a"][-1].finish == "stop"


def test_text_comes_as_the_server_sends_it_and_usage_is_the_servers(upstream: Upstream) -> None:
    with closing(generator(upstream)) as ours:
        assert isinstance(ours, Generator)
        found = run(ours, new(ours, max_tokens=5, top_p=0.5, stop=["x"]))["a"]
    assert [each.text for each in found] == ["Hi", " you", ""]
    assert [list(each.tokens) for each in found] == [[UNKNOWN_TOKEN], [UNKNOWN_TOKEN], []]
    assert (found[-1].finish, found[-1].usage) == ("stop", TokenUsage(9, 0, 3))
    limits = {"max_tokens": 5, "temperature": 0.0, "top_p": 0.5, "stop": ["x"]}
    asked = {"messages": CHAT["messages"], "model": "theirs", "stream": True, **limits}
    assert upstream.bodies() == [{**asked, "stream_options": {"include_usage": True}}]


def test_an_effort_is_sent_where_a_client_names_one_and_thinking_is_not(upstream: Upstream) -> None:
    """Servers may refuse an effort that they don't have, as OpenAI's do "none"."""
    with closing(generator(upstream)) as ours:
        run(ours, new(ours, "a", reasoning_effort="low"))
        run(ours, new(ours, "b", thinking={"type": "disabled"}))
    first, second = upstream.bodies()
    assert first.pop("reasoning_effort") == "low"
    assert first == second


def test_choices_of_one_request_have_seeds_of_their_own(upstream: Upstream) -> None:
    with closing(generator(upstream)) as ours:
        one = new(ours, n=2)
        run(ours, NewSequence("a", one.prompt, one.sampling))
    assert "seed" in upstream.bodies()[0]


MUST = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ({"response_format": JSON}, {"response_format": JSON}),
        ({"regex": "a+"}, {"structured_outputs": {"regex": "a+"}}),
        (MUST, MUST),
        ({"tools": [TOOL]}, {"tools": [TOOL], "tool_choice": "auto"}),
    ],
)
def test_the_server_gets_what_constrains_the_text(
    upstream: Upstream, asked: dict[str, Any], sent: dict[str, Any]
) -> None:
    with closing(generator(upstream)) as ours:
        run(ours, new(ours, **asked))
    [body] = upstream.bodies()
    known = {"messages", "model", "stream", "stream_options", "temperature"}
    assert {name: value for name, value in body.items() if name not in known} == sent


def test_the_stop_string_or_token_that_vllm_names_is_passed_on(upstream: Upstream) -> None:
    for named, stopped_by in (("x", "x"), (128009, 128009), (True, None), ({}, None)):
        end = chunk({}, "stop")
        end["choices"][0]["stop_reason"] = named
        upstream.answer = lambda _, end=end: Answer(raw=sse(chunk({"content": "Hi"}), end))
        with closing(generator(upstream)) as ours:
            assert run(ours, new(ours, stop=["x"]))["a"][-1].stopped_by == stopped_by


def test_a_part_of_a_character_has_its_log_probability_and_its_bytes(upstream: Upstream) -> None:
    def token(text: str, *raw: int, **more: Any) -> dict[str, Any]:
        return {"token": text, "logprob": -1.0, "bytes": list(raw) or None, **more}

    first = token("", 0xC3, top_logprobs=[token("\ufffd", 0xC5), token("x")])
    parts = ("", [first]), ("ä", [token("ä", 0xA4), token("b")])
    chunks = [chunk({"content": text}) for text, _ in parts]
    for one, (_, content) in zip(chunks, parts, strict=True):
        one["choices"][0]["logprobs"] = {"content": content}
    upstream.answer = lambda _: Answer(raw=sse(*chunks, chunk({}, "stop")))
    with closing(generator(upstream)) as ours:
        emitted = run(ours, new(ours, logprobs=True, top_logprobs=2))["a"]
    seen = [one for each in emitted for one in each.logprobs]
    assert [one.own_bytes for one in seen] == [b"\xc3", b"\xa4", b"b"]
    assert [one.own_bytes for one in seen[0].top] == [b"\xc5", b"x"]
    assert "".join(each.text for each in emitted) == "ä"


@pytest.mark.parametrize("told", [5, 10**11, "x", {"a": 1}, [256], ["x"], [], None])
def test_bytes_that_are_none_are_those_of_the_text(upstream: Upstream, told: Any) -> None:
    said = chunk({"content": "Hi"})
    seen = {"token": "Hi", "logprob": -1.0, "bytes": told}
    said["choices"][0]["logprobs"] = {"content": [seen]}
    upstream.answer = lambda _: Answer(raw=sse(said, chunk({}, "stop")))
    with closing(generator(upstream)) as ours:
        first, *_ = run(ours, new(ours, logprobs=True, return_tokens_as_token_ids=True))["a"]
    assert [one.own_bytes for one in first.logprobs] == [b"Hi"]
    sent = json.loads(upstream.received[-1].body)
    assert sent["return_tokens_as_token_ids"] is True


def test_tool_calls_come_as_text_that_the_api_reads(upstream: Upstream) -> None:
    parts = [{"index": 0, "id": "x", "function": {"name": "weather", "arguments": '{"city"'}}]
    rest = [{"index": 0, "function": {"arguments": ': "Turin"}'}}]
    body = sse(chunk({"tool_calls": parts}), chunk({"tool_calls": rest}), chunk({}, "tool_calls"))
    upstream.answer = lambda _: Answer(raw=body)
    with closing(generator(upstream)) as ours:
        [end] = run(ours, new(ours))["a"]
    assert end.finish == "stop"
    assert '{"name": "weather", "arguments": {"city": "Turin"}}' in end.text


def test_earlier_tool_calls_are_sent_as_json_text(upstream: Upstream) -> None:
    arguments = '{"n": 100000000000000000000000000001, "é": 1.5}'
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    answers = {"role": "assistant", "content": "", "tool_calls": [call]}
    messages = [*CHAT["messages"], answers, {"role": "tool", "tool_call_id": "c", "content": "1"}]
    with closing(generator(upstream)) as ours:
        run(ours, new(ours, messages=messages))
    assert upstream.bodies()[0]["messages"] == messages


def test_a_tool_call_that_the_server_cut_is_read_as_one(upstream: Upstream) -> None:
    parts = [{"index": 0, "id": "x", "function": {"name": "weather", "arguments": '{"city": "Tu'}}]
    body = sse(chunk({"tool_calls": parts}), chunk({}, "length"))
    upstream.answer = lambda _: Answer(raw=body)
    with closing(generator(upstream)) as ours:
        [end] = run(ours, new(ours))["a"]
    parser = ToolCallParser()
    assert parser.feed(end.text).text == ""
    [call] = parser.finish(cut=end.finish == "length").calls
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Tu'}


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        (Answer({"error": {"message": "too long"}}, 400), InvalidInput, "too long"),
        (Answer({}, 429, {"retry-after": "2"}), RateLimited, "429"),
        (Answer({}, 500), Transient, "500"),
        (Answer(raw=sse(chunk({"content": "Hi"}))), Transient, "without a finish reason"),
        (Answer(raw=sse({"error": {"message": "out of memory"}})), Transient, "out of memory"),
    ],
)
def test_a_failure_ends_the_sequence_alone(
    upstream: Upstream, answer: Answer, error: type[Exception], why: str
) -> None:
    answers = iter([answer])
    upstream.answer = lambda request: next(answers, None) or hello(request)
    with closing(generator(upstream, concurrency={"max": 1})) as ours:
        found = run(ours, new(ours, "a"), new(ours, "b"))
    assert type(found["a"][-1].error) is error
    assert why in str(found["a"][-1].error)
    assert found["b"][-1].finish == "stop"


def test_an_aborted_stream_closes_its_connection(upstream: Upstream) -> None:
    upstream.answer = lambda request: Answer(raw=hello(request).body * 100, drip_s=0.01)
    with closing(generator(upstream)) as ours:
        ours.add(new(ours))
        eventually(lambda: ours.step(64).emitted)
        assert upstream.connections
        ours.abort("a")
        eventually(lambda: not upstream.connections)
        assert ours.step(64).sequences == 0


def test_no_more_streams_are_open_than_the_options_allow(upstream: Upstream) -> None:
    with closing(generator(upstream, concurrency={"max": 2})) as ours:
        found = run(ours, *(new(ours, str(n)) for n in range(8)))
    assert all(its[-1].finish == "stop" for its in found.values())
    assert upstream.most_at_once <= 2


def test_a_prompt_is_refused_for_it_streams_chats_and_an_id_that_is_there(
    upstream: Upstream,
) -> None:
    with closing(generator(upstream)) as ours:
        [refused] = ours.prepare([{"prompt": "hello"}])
        [unscored] = ours.prepare([{**CHAT, "prompt_logprobs": 1}])
        ours.add(new(ours))
        with pytest.raises(ValueError, match="a is there"):
            ours.add(new(ours))
    assert isinstance(refused, InvalidInput)
    assert "messages" in str(refused)
    assert isinstance(unscored, InvalidInput)
    assert str(unscored).startswith("prompt_logprobs isn't supported")


VLLM = (
    b"# TYPE vllm:num_requests_waiting gauge\n"
    b'vllm:num_requests_waiting{engine="0",model_name="theirs"} 0.0\n'
    b'vllm:kv_cache_usage_perc{engine="0",model_name="theirs"} %s\n'
)


def item(of: Generator, id: str = "item") -> NewSequence:
    return replace(new(of, id), first=False)


def test_items_have_a_lower_priority_at_a_vllm_than_calls(upstream: Upstream) -> None:
    upstream.metrics = VLLM % b"0.1"
    with closing(generator(upstream)) as ours:
        eventually(lambda: upstream.metrics_read)
        run(ours, new(ours, "call"))
        eventually(lambda: "priority" in sent_for_an_item(ours, upstream))
    assert "priority" not in upstream.bodies()[0]
    assert upstream.bodies()[-1]["priority"] == 1


def sent_for_an_item(ours: Generator, upstream: Upstream) -> Any:
    run(ours, item(ours, f"item {len(upstream.received)}"))
    return upstream.bodies()[-1]


def test_a_vllm_without_priorities_is_sent_one_once(upstream: Upstream) -> None:
    why = "Got priority 1 but Priority scheduling is not enabled."

    def answer(request: Received) -> Answer:
        refused = "priority" in json.loads(request.body)
        return Answer({"error": {"message": why}}, 400) if refused else hello(request)

    upstream.metrics, upstream.answer = VLLM % b"0.1", answer
    with closing(generator(upstream)) as ours:
        eventually(
            lambda: sent_for_an_item(ours, upstream) and "priority" in str(upstream.bodies())
        )
        found = run(ours, *(item(ours, str(n)) for n in range(4)))
    assert all(its[-1].finish == "stop" for its in found.values())
    assert sum("priority" in body for body in upstream.bodies()) == 1


def test_other_servers_are_sent_no_priority_and_their_metrics_are_looked_for_once(
    upstream: Upstream,
) -> None:
    with closing(generator(upstream)) as ours:
        eventually(lambda: upstream.metrics_read)
        run(ours, *(item(ours, str(n)) for n in range(9)))
    assert not any("priority" in body for body in upstream.bodies())
    assert upstream.metrics_read == 1


def test_items_wait_while_the_kv_cache_of_the_server_is_nearly_full(upstream: Upstream) -> None:
    upstream.metrics = VLLM % b"0.95"
    with closing(generator(upstream)) as ours:
        eventually(lambda: ours.room().items == 0)
        ours.add(item(ours))
        assert run(ours, new(ours, "call"))["call"][-1].finish == "stop"
        assert not ours.step(64).sequences
        upstream.metrics = VLLM % b"0.5"
        eventually(lambda: (step := ours.step(64)).sequences or step.emitted)


def test_calls_go_before_items_that_came_earlier_and_items_leave_a_place_to_them(
    upstream: Upstream,
) -> None:
    with closing(generator(upstream, concurrency={"max": 1})) as ours:
        found = run(ours, item(ours, "a"), item(ours, "b"), new(ours, "call", top_p=0.5))
    assert all(its[-1].finish for its in found.values())
    assert [body.get("top_p") for body in upstream.bodies()] == [0.5, None, None]
    with closing(generator(upstream, concurrency={"start": 16, "max": 16})) as ours:
        assert ours.room() == Room(16, items=14)
