"""Messages of a conversation, calls of tools in answers, and beginnings by which calls find the
worker that has computed them."""

import sys
from typing import Any

import orjson
import pytest

from jobs.models.inputs import chat
from jobs.models.inputs.conversation import read_messages
from jobs.models.inputs.fields import FieldError
from jobs.models.inputs.prefix import prefix_digest
from jobs.models.inputs.tool_calls import Parsed, ToolCallParser, with_tool_calls
from tests.support.cases import each


def test_a_chat_model_takes_roles_and_no_other_value() -> None:
    for role in ("user", "system", "tool"):
        assert chat.refuse({"messages": [{"role": role, "content": "hello"}]}) is None
    for role, case in each(["nobody", None, 1, [], {}, ["user"]]):
        with case:
            refused = chat.refuse({"messages": [{"role": role, "content": "hello"}]})
            assert (refused or "").startswith("needs a role in messages[0]")


BIG = '{"n":100000000000000000000000000001}'
EARLIER = {"name": "weather", "arguments": '{"city": "Turin"}'}
EARLIER_CALL = {"id": "call_1", "type": "function", "function": EARLIER}


def test_parts_of_a_message_become_one_text_and_arguments_of_earlier_calls_objects() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    read = read_messages([{"role": "developer", "content": parts, "name": "ada"}])
    assert read == ({"role": "system", "content": "one\ntwo", "name": "ada"},)
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [EARLIER_CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    assistant, tool = read_messages(messages)
    assert assistant["content"] == ""
    assert assistant["tool_calls"][0]["function"]["arguments"] == {"city": "Turin"}
    assert tool["tool_call_id"] == "call_1"
    for arguments, read in ((None, {}), ("", {}), ("null", {}), (BIG, {"n": 10**29 + 1})):
        call = {**EARLIER_CALL, "function": {"name": "weather", "arguments": arguments}}
        [message] = read_messages([{"role": "assistant", "tool_calls": [call]}])
        assert message["tool_calls"][0]["function"]["arguments"] == read
    for arguments in ("{", "[]", 5, '{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}', "[" * 9999):
        call = {**EARLIER_CALL, "function": {"name": "weather", "arguments": arguments}}
        with pytest.raises(FieldError, match="arguments must be an object"):
            read_messages([{"role": "assistant", "tool_calls": [call]}])


NEUTRAL: dict[str, Any] = {
    "id": "msg_1", "status": "completed", "annotations": [], "audio": None, "function_call": None,
    "refusal": None, "reasoning_content": "", "tool_calls": [], "thinking_blocks": None,
    "provider_specific_fields": {"refusal": None},
}  # fmt: skip


def test_what_says_nothing_in_an_earlier_message_reaches_no_template() -> None:
    for role in ("user", "assistant", "system"):
        message = {"role": role, "content": "x"}
        assert read_messages([{**NEUTRAL, **message}]) == (message,)
    calls = {"role": "assistant", "content": None, "tool_calls": [EARLIER_CALL]}
    assert read_messages([NEUTRAL | calls]) == read_messages([calls])
    refusal = {"role": "assistant", "content": None, "refusal": "No."}
    assert read_messages([NEUTRAL | refusal])[0]["content"] == "No."
    for content in (None, ""):
        read = read_messages([{"role": "assistant", "content": content, "refusal": "No."}])
        assert read == ({"role": "assistant", "content": "No."},)
    answer = {"role": "tool", "tool_call_id": "", "content": "x"}
    assert read_messages([answer]) == (answer,)
    thought = {"type": "thinking", "thinking": [], "status": "completed"}
    parts = [thought, {"type": "text", "text": "x", "annotations": []}]
    read = read_messages([{"role": "assistant", "content": parts}])
    assert read == ({"role": "assistant", "content": "x"},)


def test_a_message_that_no_template_takes_is_refused_with_its_place() -> None:
    image = {"type": "image_url", "image_url": {}}
    thought = {"type": "thinking", "thinking": "y"}
    cases = [
        ("hello", "messages[0].role"),
        ({"role": "nobody", "content": "x"}, "messages[0].role"),
        ({"role": [], "content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "assistant", "content": None}, "messages[0].content"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        ({"role": "user", "content": "x", "audio": {"id": "a"}}, "messages[0].audio"),
        ({"role": "user", "content": "x", "id": 5}, "messages[0].id"),
        ({"role": "user", "content": "x", "annotations": [{}]}, "messages[0].annotations"),
        ({"role": "user", "content": "x", "reasoning": "y"}, "messages[0].reasoning"),
        ({"role": "user", "content": [thought]}, "messages[0].content[0].type"),
        ({"role": "user", "content": "x", "tool_calls": [EARLIER_CALL]}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": {"a": 1}}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[0].tool_calls[0].function"),
        ({"role": "tool", "content": "x"}, "messages[0].tool_call_id"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [image]}, "messages[0].content[0].type"),
    ]
    for (message, place), case in each(cases):
        with case:
            with pytest.raises(FieldError) as raised:
                read_messages([message])
            assert raised.value.field == place


CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Turin"}}\n</tool_call>'
WEATHER = {"name": "weather", "arguments": '{"city":"Turin"}'}


def parsed(*parts: str) -> Parsed:
    parser = ToolCallParser(lambda: "call_x")
    found = [*(parser.feed(part) for part in parts), parser.finish()]
    return Parsed("".join(one.text for one in found), [call for one in found for call in one.calls])


def test_calls_are_found_however_the_text_is_cut_and_a_text_without_one_is_not_held_back() -> None:
    text = f"Let me look.\n{CALL}\n{CALL}"
    for size, case in each([1, 2, 7, 1000]):
        with case:
            found = parsed(*(text[n : n + size] for n in range(0, len(text), size)))
            assert [call["function"] for call in found.calls] == [WEATHER, WEATHER]
            assert found.text.strip() == "Let me look."
    found = parsed(CALL.removesuffix("\n</tool_call>"))
    assert [call["function"] for call in found.calls] == [WEATHER]
    assert found.text == ""
    for text, case in each(["a < b", "<tool", "<tool_call>{", CALL.replace("name", "nom"), ""]):
        with case:
            assert parsed(*text) == Parsed(text)
    parser = ToolCallParser()
    assert parser.feed("1 < 2").text == "1 < 2"
    assert parser.feed(" so <tool").text == " so "
    assert parser.feed("box>").text == "<toolbox>"


def test_a_call_ends_where_its_json_does_and_has_an_object_as_its_arguments() -> None:
    def called(arguments: str, name: str = "f") -> str:
        return f'<tool_call>{{"name": "{name}", {arguments}}}</tool_call>'

    cases = [
        ('"arguments": {"a": "</tool_call>"}', '{"a":"</tool_call>"}'),
        ('"arguments": {"a": "\\\\\\"</tool_call>\\\\"}', '{"a":"\\\\\\"</tool_call>\\\\"}'),
        ('"arguments": null', "{}"),
        ('"arguments": ""', "{}"),
        ('"arguments": " null "', "{}"),
        ('"arguments": "{\\"a\\": 1}"', '{"a": 1}'),
        ('"arguments": {"é": [1.5, null]}', '{"é":[1.5,null]}'),
        ('"id": 1', "{}"),
        (f'"arguments": {BIG}', BIG),
        (f'"parameters": {BIG}', BIG),
    ]
    for (arguments, read), case in each(cases):
        with case:
            for size in (1, 5, 1000):
                text = f"a{called(arguments)}b{CALL}"
                found = parsed(*(text[n : n + size] for n in range(0, len(text), size)))
                assert [one["function"] for one in found.calls] == [
                    {"name": "f", "arguments": read},
                    WEATHER,
                ]
                assert found.text == "ab"
                taken = {"role": "assistant", "content": None, "tool_calls": found.calls}
                assert read_messages([taken])
            assert parsed(called(arguments).removesuffix("</tool_call>")).calls
    broken = [
        called('"arguments": "hello"'), called('"arguments": [1]'), called('"arguments": 5'),
        called('"arguments": {"a": NaN}'), called('"arguments": {"a": "\\ud800"}'),
        '<tool_call>{"name": "f</tool_call>', '<tool_call>{"name": "f\n"}</tool_call>',
        '<tool_call>{"a</tool_call>\n"x</tool_call>', "<tool_call></tool_call>",
    ]  # fmt: skip
    for text, case in each(broken):
        with case:
            assert parsed(*text) == Parsed(text)
            found = parsed(*f"{text}b{CALL}")
            assert (found.text, [one["function"] for one in found.calls]) == (f"{text}b", [WEATHER])


def test_a_call_that_is_cut_is_an_unfinished_one_and_no_text() -> None:
    """Each beginning of a call: in one piece, as a stream, and as a completion."""
    whole, before = CALL, "Let me look.\n"
    named, arguments = whole.index('r"') + 2, whole.index('{"city')
    for size in range(2, len(whole)):
        text = whole[:size]
        parser = ToolCallParser(lambda: "call_x")
        parts = [parser.feed(one) for one in before + text] + [parser.finish(cut=True)]
        calls = [call["function"] for part in parts for call in part.calls]
        assert "".join(part.text for part in parts).strip() == before.strip()
        assert len(calls) == (size >= named)
        for call in calls:
            so_far = call["arguments"]
            given = WEATHER["arguments"].startswith(so_far.replace(" ", "")) and so_far
            assert call["name"] == "weather"
            assert bool(given) == (size > arguments)
        [choice] = with_tool_calls(completion(before + text, "length"))["choices"]
        message = choice["message"]
        assert (message["content"], choice["finish_reason"]) == (before.strip(), "length")
        assert [call["function"] for call in message.get("tool_calls", ())] == calls
    assert parsed(whole[:50]) == Parsed(whole[:50])  # it ended by itself


def test_a_text_is_read_in_time_linear_in_its_length_whatever_its_quotes() -> None:
    """Counts the calls of C functions: one for each mark in the text that is looked at."""
    quoted = '<tool_call>"</tool_call>"'
    shapes = [(quoted, ""), (quoted, '"\n'), (quoted, "</tool_call>"), (quoted + "\\", "")]
    shapes += [('<tool_call>{"</tool_call>":"', ""), ("<tool_call></tool_call>", "")]
    for (unit, end), case in each(shapes):
        with case:
            assert parsed(unit * 50 + end) == Parsed(unit * 50 + end)
            few, many = (_c_calls(unit * count + end) for count in (200, 400))
            assert many < 2.2 * few


def _c_calls(text: str) -> int:
    counted = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal counted
        counted += event == "c_call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        parsed(text)
    finally:
        sys.setprofile(before)
    return counted


def completion(text: str, finish: str = "stop") -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}


def test_a_completion_that_calls_says_so_unless_it_is_cut_short() -> None:
    [choice] = with_tool_calls(completion(CALL))["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"][0]["function"] == WEATHER
    assert with_tool_calls(completion("hello")) == completion("hello")
    [choice] = with_tool_calls(completion(CALL, "length"))["choices"]
    assert choice["finish_reason"] == "length"


LONG = "be kind to every guest, " * 30
IDS = list(range(400))


def digest(value: Any, tenant: str = "t", adapter: str = "") -> str | None:
    return prefix_digest(tenant, adapter, orjson.dumps(value))


def conversation(first: str, *others: str) -> dict[str, Any]:
    system = {"role": "system", "content": first}
    return {"messages": [system, *({"role": "user", "content": one} for one in others)]}


def test_requests_that_begin_alike_have_one_digest() -> None:
    cases = [
        (conversation(LONG, "who?"), conversation(LONG, "why?")),
        (conversation("short", LONG, "who?"), conversation("short", LONG, "why?")),
        (conversation(LONG), {"max_tokens": 7, **conversation(LONG), "n": 2}),
        ({"prompt": LONG + "who?"}, {"temperature": 0, "prompt": LONG + "why?", "n": 2}),
        ({"prompt": [*IDS, 1]}, {"prompt": [*IDS, 2]}),
    ]
    for (one, other), case in each(cases):
        with case:
            assert digest(one)
            assert digest(one) == digest(other)


def test_other_beginnings_roles_tenants_and_adapters_have_others_and_short_ones_none() -> None:
    whose = ("t", ""), ("u", ""), ("t", "legal"), ("t", "tax"), ("tlegal", "")
    user = {"messages": [{"role": "user", "content": LONG}]}
    values = [conversation(LONG), user, {"prompt": LONG}, {"prompt": "A" + LONG}, {"prompt": IDS}]
    digests = {digest(value, *its) for its in whose for value in values}
    assert len(digests) == len(whose) * len(values)
    salted = [
        {**conversation(LONG), **salt} for salt in ({}, {"cache_salt": "a"}, {"cache_salt": "b"})
    ]
    assert digest(salted[1]) == digest({"cache_salt": "a", **conversation(LONG)})
    assert digest(salted[1]) != digest(conversation('"cache_salt":"a"' + LONG))
    assert len(set(map(digest, salted))) == 3
    short = conversation("short", "too"), {"prompt": "short"}, {"prompt": [1, 2]}
    for value, case in each(["text" * 200, None, {}, *short]):
        with case:
            assert digest(value) is None
