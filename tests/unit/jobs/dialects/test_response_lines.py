"""Lines of OpenAI's batches that are requests for responses, and the responses that answer them."""

import json
from typing import Any

from openai.types.responses import Response

from jobs import ids
from jobs.dialects import dialect
from tests.support.cases import each
from tests.unit.jobs.dialects.test_openai import ASKED, asks, body_of, faults, take, written

RESPONSES = ASKED | {"endpoint": "/v1/responses", "model": "writer", "created": 1_763_629_200}
CALL = '<tool_call>{"name":"weather","arguments":{"city":"Turin"}}</tool_call>'
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}


def ask(**body: Any) -> dict[str, Any]:
    return asks("responses", **{"model": "writer", "input": "hi", **body})


def completion(text: str, **more: Any) -> str:
    message = {"role": "assistant", "content": text, "refusal": None}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return json.dumps({"choices": [choice | more], "usage": usage, "created": 1_763_629_260})


def response_of(**row: Any) -> Response:
    return Response.model_validate(body_of(RESPONSES, **row), strict=True)


def test_a_line_is_the_input_of_a_chat_and_its_reply_what_the_response_repeats() -> None:
    repeated = {"instructions": "be brief", "max_output_tokens": 7, "metadata": {"kind": "test"}}
    effort = {"reasoning": {"effort": "high"}}
    line = ask(**repeated, **effort, store=True, seed=5)
    [(seq, custom_id, params, reply, input), (*_, plain, _)] = take(
        line, ask() | {"custom_id": "b"}, asked=RESPONSES
    )
    assert (seq, custom_id, params) == (0, "a", None)
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    asked = {"max_completion_tokens": 7, "reasoning_effort": "high", "seed": 5}
    assert json.loads(input) == {"messages": messages, **asked}
    assert json.loads(reply) == {**repeated, **effort}
    assert plain is None
    shown = response_of(output=completion("x"), reply=reply).to_dict()
    assert {name: shown[name] for name in repeated} == repeated
    assert shown["reasoning"] == {"effort": "high", "summary": None}


def test_what_no_batch_serves_is_refused_by_name() -> None:
    earlier = [{"type": "item_reference", "id": "msg_1"}]
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"stream": True}, "unsupported_parameter", "stream"),
        ({"background": True}, "unsupported_parameter", "background"),
        ({"previous_response_id": "resp_1"}, "unsupported_parameter", "previous_response_id"),
        ({"input": earlier}, "unsupported_parameter", "input"),
        ({"input": None}, "missing_required_parameter", "input"),
        ({"input": []}, "invalid_value", "input"),
        ({"conversation": "conv_1"}, "unsupported_parameter", "conversation"),
        ({"timeout_ms": 5}, "invalid_value", "timeout_ms"),
        ({"invented": 1}, "invalid_value", "invented"),
        ({"input": "\ud800"}, "lone_surrogate", "input"),
        ({"input": "\0"}, "nul", "input"),
        ({"instructions": "\0"}, "nul", "instructions"),
        ({"user": "\ud800"}, "lone_surrogate", "user"),
        ({"text": {"format": {"type": "json_schema", "schema": 5}}}, "invalid_value",
         "text.format.json_schema.schema"),
    ]  # fmt: skip
    for (body, code, param), case in each(cases):
        with case:
            assert faults(ask(**body), asked=RESPONSES) == [(1, code, f"body.{param}")]
    neutral: dict[str, Any] = {"stream": False, "background": False, "previous_response_id": None}
    [(*_, reply, _)] = take(ask(**neutral, store=False), asked=RESPONSES)
    assert reply is None


def test_an_output_is_a_response_with_an_id_of_its_own() -> None:
    made = [response_of(output=completion("hello"), seq=seq) for seq in (0, 1, 1)]
    assert made[1] == made[2], "it is the same one, whenever it is read"
    assert len({one.id for one in made} | {one.output[0].id or "" for one in made}) == 4
    first = made[0]
    assert ids.parse("resp", first.id)
    assert (first.status, first.output_text, first.model) == ("completed", "hello", "writer")
    assert (first.created_at, first.completed_at) == (1_763_629_200, 1_763_629_260)
    assert first.usage is not None
    assert (first.usage.input_tokens, first.usage.output_tokens) == (3, 2)
    assert first.to_dict()["store"] is False
    cut = response_of(output=completion("hel", finish_reason="length"))
    assert cut.incomplete_details is not None
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")


def test_calls_of_tools_are_items() -> None:
    [(*_, reply, _)] = take(ask(tools=[WEATHER]), asked=RESPONSES)
    for text, kinds in ((CALL, ["function_call"]), ("so" + CALL, ["message", "function_call"])):
        made = response_of(output=completion(text), reply=reply)
        assert [item.type for item in made.output] == kinds
    assert response_of(output=completion(CALL)).output_text == CALL, "there were no tools"


def test_an_output_that_is_no_completion_is_a_text() -> None:
    made = response_of(output='"hello"')
    assert made.usage is not None
    assert (made.output_text, made.usage.input_tokens) == ("hello", 5)
    for output, case in each(["[0.5]", '{"choices": []}', '{"choices": [{"message": {}}]}']):
        with case:
            assert response_of(output=output.encode()).output_text == output


def test_a_failed_line_has_the_error_in_place_of_a_response() -> None:
    error = json.dumps({"code": "engine_error", "message": "why"})
    part, line = written(RESPONSES, outcome="failed", error=error)
    assert (part, line["response"]["status_code"]) == ("errors", 500)
    assert line["response"]["body"]["error"]["code"] == "engine_error"


def test_an_output_with_odd_parts_is_the_error_of_its_line_and_counted_so() -> None:
    calls: list[Any] = [[1], [{"id": "a"}], [{"function": {}}], 5, "a"]
    odd = [completion("", message={"content": "", "tool_calls": one}) for one in calls]
    odd += [completion("x", logprobs=one) for one in ([1], {"content": [1]}, {"content": 5})]
    odd += [json.dumps(json.loads(completion("x")) | {"usage": one}) for one in ([1], "x", 5)]
    for output, case in each(odd):
        with case:
            part, line = written(RESPONSES, output=output)
            assert (part, line["response"]["body"]["error"]["code"]) == ("errors", "invalid_output")
            problem = dialect("openai").output_problem(json.loads(output), "chat")
            assert problem == "the model's output is no chat completion"
    for output, case in each([completion("x"), '"hello"', "[0.5]", '{"choices": [{}]}']):
        with case:
            assert dialect("openai").output_problem(json.loads(output), "chat") is None
            assert written(RESPONSES, output=output)[0] == "results"
