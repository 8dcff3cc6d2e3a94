"""Checks of responses: tests/entrypoints/openai/responses."""

import json
import re
from typing import Any

from tests.acceptance.compat.vllm.chat_checks import valid
from tests.acceptance.compat.vllm.check import (
    RESPONSES,
    Answer,
    Check,
    Request,
    check,
    get,
    good,
    refused,
    response,
)
from tests.acceptance.compat.vllm.tool_checks import is_nested

BASIC = "openai/responses/test_basic.py::"
STATEFUL = "openai/responses/test_stateful.py::"
SIMPLE = "openai/responses/test_simple.py::"
FORM = "openai/responses/test_structured_output.py::"
MOST: Any = {"max_output_tokens": 40}
SHORT: Any = {"choice": ["56088"]}  # a model of random weights seldom ends
ENDED = ("completed", "incomplete")
LOGPROBS = {"include": ["message.output_text.logprobs"]}
EVENT = {
    "type": "object",
    "properties": {
        "event_name": {"type": "string", "maxLength": 10},
        "participants": {"type": "array", "items": {"type": "string", "maxLength": 8},
                         "maxItems": 2},
    },
    "required": ["event_name", "participants"],
    "additionalProperties": False,
}  # fmt: skip
FORMAT = {"format": {"type": "json_schema", "name": "event", "schema": EVENT, "strict": True}}


def has_ended(answer: Answer) -> bool:
    return answer["status"] in ENDED and bool(answer["output"])


def stored(found: Any, n: int = 0, verb: str = "") -> Request:
    path = f"{RESPONSES}/{found[n]['id']}{verb}"
    return Request(path, {}) if verb else get(path)


def user(text: str) -> Any:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def history(**more: Any) -> Any:
    """The assistant's turn and an empty reasoning, without ids or with the given ones."""
    said = {"type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": "Acknowledged."}]}  # fmt: skip
    thought = {"type": "reasoning", "summary": [], "encrypted_content": None}
    if more:
        said, thought = said | {"id": "msg_1", **more}, thought | {"id": "rs_1", **more}
    return [user("You are concise."), said, thought, user("Reply with one short sentence.")]


def shows_logprobs(answer: Answer) -> bool:
    deltas = [one for one in answer.body if one["type"] == "response.output_text.delta"]
    found = [one for delta in deltas for one in delta["logprobs"]]
    return (
        all(one["logprobs"] for one in deltas)
        and all(one["logprob"] <= 0.0 and 0 < len(one["top_logprobs"]) <= 3 for one in found)
        and bool(found)
    )


CHECKS: tuple[Check, ...] = (
    check(BASIC + "test_simple_input",
          (response("What is 13 * 24?", **MOST),
           good(lambda a: a["output"][-1]["type"] == "message"))),
    check(BASIC + "test_instructions",
          (response("What is 13 * 24?", instructions="Finish the answer with QED.", **MOST),
           good(has_ended))),
    check(BASIC + "test_chat",
          (response([{"role": "system", "content": "Finish the answer with QED."},
                     {"role": "user", "content": "What is 5 * 3?"},
                     {"role": "assistant", "content": "15. QED."},
                     {"role": "user", "content": "Multiply the result by 2."}], **MOST),
           good(has_ended))),
    check(BASIC + "test_chat_with_input_type",
          (response([user("Hello!")], **MOST), good(has_ended))),
    check(BASIC + "test_logprobs",
          (response("What is 13 * 24?", **LOGPROBS, top_logprobs=5, **MOST),
           good(lambda a: len(a["output"][-1]["content"][-1]["logprobs"][0]["top_logprobs"])
                == 5))),
    check(BASIC + "test_streaming",
          (response("What is 13 * 24?", stream=True, **SHORT),
           good(lambda a: a.body[0]["type"] == "response.created"
                and a.body[-1]["type"] == "response.completed" and a.text))),
    check(STATEFUL + "test_store",
          (response("Hello!", **MOST), good(has_ended)),
          (stored, good(has_ended)),
          (response("Hello!", store=False, **MOST), good(has_ended)),
          (lambda found: stored(found, 2),
           lambda a: a.status == 404
           and re.search("Response with id .* not found.", a.said))),
    check(STATEFUL + "test_background",
          (response("Hello!", background=True, **MOST), good(lambda a: a["status"] == "queued")),
          (stored, good(lambda a: a["status"] in ("queued", "in_progress", *ENDED)))),
    check(STATEFUL + "test_background_error",
          (response("Hello!", background=True, store=False),
           refused("background can only be used when `store` is true"))),
    check(STATEFUL + "test_background_cancel",
          (response("Write a long story about a cat.", background=True, ignore_eos=True,
                    max_output_tokens=3000), good(lambda a: a["status"] == "queued")),
          (lambda found: stored(found, verb="/cancel"),
           good(lambda a: a["status"] == "cancelled")),
          *((stored, good(lambda a: a["status"] == "cancelled")) for _ in range(3))),
    check(STATEFUL + "test_cancel_completed",
          (response("Hello", **MOST), good(has_ended)),
          (lambda found: stored(found, verb="/cancel"),
           refused("Cannot cancel a synchronous response."))),
    check(STATEFUL + "test_previous_response_id",
          (response("Hello, my name is John.", instructions="Be brief.", **MOST), good(has_ended)),
          *((lambda found: response("And now?", previous_response_id=found[-1]["id"], **MOST),
             good(has_ended)) for _ in range(2))),
    check(STATEFUL + "test_two_responses_with_same_prev_id",
          (response("Hello, my name is John.", **MOST), good(has_ended)),
          *((lambda found: response("And now?", previous_response_id=found[0]["id"], **MOST,
                                    temperature=0.0), good(has_ended)) for _ in range(2)),
          together=lambda found: found[1].text == found[2].text),
    check(FORM + "test_structured_output",
          (response([{"role": "system", "content": "Extract the event information."},
                     {"role": "user", "content": "A science fair."}], text=FORMAT),
           good(lambda a: valid(a.text, EVENT)))),
    check(FORM + "test_structured_output_with_parse",
          (response("A science fair.", instructions="Extract the event information.", text=FORMAT),
           good(lambda a: json.loads(a.text)["event_name"] is not None))),
    check(SIMPLE + "test_basic",
          (response("What is 123 * 456?", reasoning={"effort": "none"}, **SHORT),
           good(lambda a: a["status"] == "completed" and a["incomplete_details"] is None))),
    check(SIMPLE + "test_enable_response_messages",
          (response("Hello?", enable_response_messages=True),
           good(lambda a: a["input_messages"][0]["type"] == "raw_message_tokens")),
          differs="the prompt isn't shown in the answer; `enable_response_messages` is refused"),
    check(SIMPLE + "test_input_history_openai_shape_e2e",
          (response(history(status="completed"), temperature=0.0, **MOST), good(has_ended))),
    check(SIMPLE + "test_input_history_openresponses_shape_e2e",
          (response(history(), temperature=0.0, **MOST), good(has_ended))),
    check(SIMPLE + "test_multiturn_history_replay_without_ids_e2e",
          (response("MARKER-729", temperature=0.0, **MOST), good(has_ended)),
          (lambda found: response([user("MARKER-729"), {
              "type": "message", "role": "assistant",
              "content": [{"type": "output_text", "text": found[0].text}]}, *history()[2:]],
              temperature=0.0, **MOST), good(has_ended))),
    check(SIMPLE + "test_streaming_output_consistency",
          (response("Say hello in one sentence.", stream=True, **SHORT),
           good(lambda a: a.text == Answer(200, a.body[-1]["response"], {}).text
                and a.body[-1]["response"]["output"]))),
    check(SIMPLE + "test_streaming_logprobs",
          (response("Say hello.", stream=True, top_logprobs=3, **LOGPROBS, **MOST),
           good(shows_logprobs))),
    check(SIMPLE + "test_max_tokens",
          (response("The first paragraph of Moby Dick?", reasoning={"effort": "low"},
                    max_output_tokens=5, ignore_eos=True),
           good(lambda a: a["status"] == "incomplete"
                and a["incomplete_details"]["reason"] == "max_output_tokens"))),
    check(SIMPLE + "test_extra_sampling_params",
          (response("Write a short sentence", max_output_tokens=50, temperature=0.7, top_p=0.9,
                    top_k=40, repetition_penalty=1.2, seed=42),
           good(lambda a: has_ended(a) and a.text))),
    check(SIMPLE + "test_streaming_types",
          (response("a story about a cat", reasoning={"effort": "low"}, tools=[], stream=True,
                    background=False, **MOST), good(is_nested))),
)  # fmt: skip
