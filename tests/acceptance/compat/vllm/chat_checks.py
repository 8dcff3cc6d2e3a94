"""Checks of chat completions: tests/entrypoints/openai/chat_completion."""

import json
import re
from typing import Any

import jsonschema_rs

from tests.acceptance.compat.vllm.check import (
    ASKED,
    CHAT,
    MODEL,
    Answer,
    Check,
    Request,
    chat,
    check,
    good,
    ok,
    refused,
    said,
)
from tests.support.generation.tiny_llama import VOCABULARY

FILE = "openai/chat_completion/test_chat.py::"
ZERO = {"temperature": 0.0}
SHORT = {"max_completion_tokens": 5}
EARLIER: Any = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "Who won the world series in 2020?"},
    {"role": "assistant", "content": "The Los Angeles Dodgers won the World Series in 2020."},
    {"role": "user", "content": "Where was it played?"},
]
EMPLOYEE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "role": {"type": "string", "enum": ["cook", "miller"]},
    },
    "required": ["name", "age", "role"],
}  # fmt: skip
LANGUAGES = ["Python", "Java", "JavaScript", "C++", "C#", "PHP", "TypeScript", "Ruby", "Swift"]
ADDRESS = r"((25[0-5]|(2[0-4]|1\d|[1-9]|)\d)\.){3}(25[0-5]|(2[0-4]|1\d|[1-9]|)\d)"
RESULT = {"type": "object", "properties": {"result": {"type": "integer"}}}
INVALID_SCHEMA = {
    "$defs": {"Kind": {"enum": ["sedan", "SUV"], "title": "Kind", "type": "string"}},
    "properties": {"brand": {"type": "string"}, "kind": {"$ref": "#/$defs/Kind"}, "foo": "bar"},
    "required": ["brand", "kind"],
    "type": "object",
}
INVALID_GRAMMAR = """
root ::= select_statementinvalidsyntax
select_statement ::= "SELECT " column " from " table
column ::= "col_1 " | "col_2 "
table ::= "table_1 " | "table_2 "
"""


def valid(text: str, schema: Any) -> bool:
    return bool(jsonschema_rs.is_valid(schema, json.loads(text)))


def finishes(chunks: Any) -> list[str]:
    return [one["finish_reason"] for chunk in chunks for one in chunk["choices"]
            if one.get("finish_reason")]  # fmt: skip


def has_usage_last(answer: Answer) -> bool:
    *chunks, last = answer.body
    usage = last["usage"]
    return (
        all(chunk.get("usage") is None for chunk in chunks)
        and last["choices"] == []
        and usage["prompt_tokens"] > 0
        and usage["completion_tokens"] > 0
        and usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    )


def has_usage_throughout(answer: Answer) -> bool:
    usages = [chunk["usage"] for chunk in answer.body]
    counts = [usage["completion_tokens"] for usage in usages]
    sums = [one["prompt_tokens"] + one["completion_tokens"] for one in usages]
    return counts == sorted(counts) and sums == [one["total_tokens"] for one in usages]


def has_no_usage(answer: Answer) -> bool:
    return all(chunk.get("usage") is None for chunk in answer.body)


def structured(**form: Any) -> Request:
    return chat(max_completion_tokens=1000, seed=1, structured_outputs=form)


STREAMED = {"stream": True, "max_completion_tokens": 10, **ZERO}
LOGPROBS = (
    check(FILE + "test_no_logprobs_chat",
          (chat(**SHORT, **ZERO, logprobs=False), good(lambda a: a.choice["logprobs"] is None))),
    check(FILE + "test_zero_logprobs_chat",
          (chat(**SHORT, **ZERO, logprobs=True, top_logprobs=0),
           good(lambda a: a.choice["logprobs"]["content"][0]["top_logprobs"] == []))),
    check(FILE + "test_some_logprobs_chat",
          (chat(**SHORT, **ZERO, logprobs=True, top_logprobs=5),
           good(lambda a: len(a.choice["logprobs"]["content"][0]["top_logprobs"]) == 5))),
    check(FILE + "test_too_many_chat_logprobs",
          (chat(logprobs=True, top_logprobs=21, stream=True), refused()),
          (chat(logprobs=True, top_logprobs=30), refused()),
          (chat(**SHORT), good(lambda a: a.content is not None))),
    check(FILE + "test_prompt_logprobs_chat",
          *((chat(EARLIER, prompt_logprobs=n, max_tokens=20), good(lambda a: a["prompt_logprobs"]))
            for n in (1, 0)),
          (chat(EARLIER, prompt_logprobs=-1), refused("prompt_logprobs")),
          (chat(EARLIER, max_tokens=20), good(lambda a: not a.body.get("prompt_logprobs")))),
    # The token of the prompt comes beside the likeliest where it is none of them.
    check(FILE + "test_more_than_one_prompt_logprobs_chat",
          *((chat(EARLIER, prompt_logprobs=n, max_tokens=20),
             good(lambda a, n=n: n <= len(a["prompt_logprobs"][3]) <= n + 1))  # type: ignore[misc]
            for n in (1, 2))),
)  # fmt: skip
SESSIONS = (
    check(FILE + "test_single_chat_session",
          (chat(**SHORT, **ZERO, logprobs=True, top_logprobs=5),
           good(lambda a: a["id"] and len(a.choices) == 1 and a.choice["finish_reason"] == "length"
                and a["usage"]["completion_tokens"] == 5 and a["usage"]["prompt_tokens"] > 5
                and a["usage"]["total_tokens"] == 5 + a["usage"]["prompt_tokens"]
                and a.choice["message"]["role"] == "assistant" and a.content)),
          (lambda found: chat([*ASKED, {"role": "assistant", "content": found[0].content},
                               {"role": "user", "content": "express your result in json"}]),
           good(lambda a: a.content is not None))),
    check(FILE + "test_chat_streaming",
          (chat(max_completion_tokens=10, **ZERO), ok),
          (chat(**STREAMED),
           good(lambda a: {"assistant"} >= {one["delta"].get("role", "assistant")
                                            for chunk in a.body for one in chunk["choices"]})),
          together=lambda found: (
              found[1].text == found[0].content
              and finishes(found[1].body) == [found[0].choice["finish_reason"]]
              and found[1].body[-1]["choices"][0]["finish_reason"]
              and found[1].body[-1]["choices"][0]["delta"]["content"])),
    check(FILE + "test_chat_completion_stream_options",
          (chat(**STREAMED, stream_options={"include_usage": False}), good(has_no_usage)),
          (chat(**STREAMED, stream_options={"include_usage": True,
                                            "continuous_usage_stats": False}),
           good(has_usage_last)),
          (chat(**ZERO, stream_options={"include_usage": None}), refused()),
          (chat(**ZERO, stream_options={"include_usage": True}), refused()),
          (chat(**STREAMED, min_tokens=10, stream_options={"include_usage": True,
                                                           "continuous_usage_stats": True}),
           good(lambda a: has_usage_throughout(a)
                and a.body[-1]["usage"]["completion_tokens"] == 10))),
    check(FILE + "test_extra_fields_allowed",
          (chat([{**ASKED[1], "extra_field": "0"}], **ZERO, seed=0), good(lambda a: a.content)),
          differs="a field of a message that isn't known is refused by its name, as OpenAI does"),
    check(FILE + "test_complex_message_content",
          (chat([{"role": "user", "content": [{"type": "text", "text": "what is 1+1?"}]}], **ZERO),
           ok),
          (said("what is 1+1?", **ZERO), ok),
          together=lambda found: found[0].content == found[1].content),
    check(FILE + "test_custom_role",
          *((chat([{"role": "my-custom-role", "content": content}], **ZERO, seed=0), ok)
            for content in ("what is 1+1?", [{"type": "text", "text": "what is 1+1?"}])),
          together=lambda found: found[0].content == found[1].content,
          differs="another role is refused: templates that put control tokens together of pieces "
          "would write one that the role spells"),
    check(FILE + "test_long_seed",
          *((chat(**ZERO, seed=seed), refused("seed")) for seed in (-(2**63) - 1, 2**63))),
    check(FILE + "test_invocations",
          *((Request(path, {"model": MODEL, "messages": ASKED, **SHORT, **ZERO,
                            "logprobs": False}), ok) for path in (CHAT, "/invocations")),
          together=lambda found: found[0].body.keys() == found[1].body.keys()
          and found[0].choices == found[1].choices),
    check(FILE + "test_chat_completion_n_parameter_non_streaming",
          (chat(max_completion_tokens=50, temperature=1.0, n=3, seed=42),
           good(lambda a: [one["index"] for one in a.choices] == [0, 1, 2]
                and len({one["message"]["content"] for one in a.choices}) > 1
                and all(one["message"]["content"] for one in a.choices)))),
    check(FILE + "test_chat_completion_n_parameter_streaming",
          (chat(max_completion_tokens=15, temperature=0.7, n=2, stream=True, seed=3),
           good(lambda a: {one["index"] for chunk in a.body for one in chunk["choices"]
                           if one["delta"].get("content")} == {0, 1}))),
    check(FILE + "test_chat_completion_n_with_seed",
          (said("Say hello.", max_completion_tokens=10, temperature=0.8, n=2, seed=42),
           good(lambda a: [one["index"] for one in a.choices] == [0, 1]
                and all(one["message"]["content"] for one in a.choices)))),
    check(FILE + "test_chat_completion_n_equals_1",
          (said("Hello!", max_completion_tokens=10, temperature=0.7, n=1),
           good(lambda a: len(a.choices) == 1 and a.choice["index"] == 0
                and a.content is not None))),
)  # fmt: skip
STRUCTURED = (
    check(FILE + "test_structured_outputs_choice_chat",
          *((chat(max_completion_tokens=10, temperature=0.7,
                  structured_outputs={"choice": LANGUAGES}),
             good(lambda a: a.content in LANGUAGES)) for _ in range(2))),
    check(FILE + "test_structured_outputs_json_chat",
          *((structured(json=EMPLOYEE), good(lambda a: valid(a.content, EMPLOYEE)))
            for _ in range(2))),
    check(FILE + "test_structured_outputs_regex_chat",
          *((chat(max_completion_tokens=20, structured_outputs={"regex": ADDRESS}),
             good(lambda a: re.fullmatch(ADDRESS, a.content))) for _ in range(2))),
    check(FILE + "test_structured_outputs_type_error",
          (structured(regex={"1": "Python", "2": "C++"}), refused())),
    check(FILE + "test_structured_outputs_choice_chat_logprobs",
          (chat(max_completion_tokens=10, logprobs=True, top_logprobs=5,
                structured_outputs={"choice": LANGUAGES}),
           good(lambda a: all(one["logprob"] >= -9999.0 for one in
                              a.choice["logprobs"]["content"][0]["top_logprobs"])))),
    check(FILE + "test_response_format_json_object",
          (said("a JSON object", response_format={"type": "json_object"}, **ZERO),
           good(lambda a: isinstance(json.loads(a.content), dict)))),
    check(FILE + "test_response_format_json_schema",
          (said('what is 1+1? The format is "result": 2', **ZERO, max_tokens=20,
                response_format={"type": "json_schema",
                                 "json_schema": {"name": "foo_test", "schema": RESULT}}),
           good(lambda a: a.choice["finish_reason"] == "length" or valid(a.content, RESULT)))),
    check(FILE + "test_response_format_text",
          (said("what is 1+1?", max_completion_tokens=10, response_format={"type": "text"}),
           good(lambda a: a.content is not None))),
    *(check(f"openai/chat_completion/test_chat_completion.py::{name}",
            (said("Say hello", structured_outputs=form), refused()))
      for name, form in (("test_invalid_json_schema", {"json": INVALID_SCHEMA}),
                         ("test_invalid_regex", {"regex": "[.*"}),
                         ("test_invalid_grammar", {"grammar": INVALID_GRAMMAR}),
                         ("test_empty_grammar", {"grammar": ""}))),
)  # fmt: skip
SAYING = "Here is a common saying about apple. An apple a day, keeps"
GOING_ON = [{"role": "user", "content": "tell me a common saying"},
            {"role": "assistant", "content": SAYING}]  # fmt: skip
GO_ON = {"continue_final_message": True, "add_generation_prompt": False, "max_tokens": 20}
ECHO = "openai/chat_completion/test_chat_echo.py::"
BIAS = "openai/chat_completion/test_chat_logit_bias_validation.py::test_chat_logit_bias_"
STOP = "openai/chat_completion/test_chat_stop_token_ids_validation.py::test_chat_stop_token_ids_"
OUTSIDE = VOCABULARY + 1
TOKENS = (
    check(f"{ECHO}test_chat_session_with_echo_and_continue_final_message",
          (chat(GOING_ON, **GO_ON, echo=True), good(lambda a: SAYING in a.content)),
          (chat(GOING_ON, **GO_ON, echo=False), good(lambda a: SAYING not in a.content))),
    check(f"{BIAS}valid", (said("x", max_tokens=5, logit_bias={str(VOCABULARY - 1): 1.0}),
                           good(lambda a: a.content is not None))),
    check(f"{BIAS}invalid", (said("x", logit_bias={str(OUTSIDE): 1.0}),
                             refused(str(OUTSIDE), str(VOCABULARY)))),
    check(f"{BIAS}non_integer_key", (said("x", logit_bias={"not_a_token_id": 50}),
                                     refused("not_a_token_id", "logit_bias"))),
    check(f"{BIAS}non_numeric_value", (said("x", logit_bias={"1": "not_a_number"}),
                                       refused("logit_bias"))),
    check(f"{BIAS}multiple_non_integer_keys", (said("x", logit_bias={"bad1": 50.0, "bad2": 20.0}),
                                               refused("bad1", "bad2"))),
    check(f"{STOP}valid", (said("x", max_tokens=5, stop_token_ids=[VOCABULARY - 1]),
                           good(lambda a: a.content is not None))),
    check(f"{STOP}out_of_vocab", (said("x", stop_token_ids=[OUTSIDE]),
                                  refused(str(OUTSIDE), str(VOCABULARY)))),
    check(f"{STOP}negative", (said("x", stop_token_ids=[-1]), refused())),
)  # fmt: skip
CHECKS: tuple[Check, ...] = (*LOGPROBS, *SESSIONS, *STRUCTURED, *TOKENS)
