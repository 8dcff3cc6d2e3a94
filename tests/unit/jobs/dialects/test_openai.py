"""The words of OpenAI's batches: lines on their way in, answers on their way out."""

import base64
import io
import json
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from openai.types import CreateEmbeddingResponse
from openai.types.chat import ChatCompletion

from jobs import ids
from jobs.dialects import dialect
from jobs.errors import Invalid
from jobs.intake.lines import bounded_lines
from jobs.intake.spool import MAX_FAULTS, Intake
from jobs.models.model import Limits, Model
from jobs.models.registry import Registry
from tests.support.cases import each

EMBEDDER = Model("minilm", "1", "minilm", limits=Limits(max_item_bytes=2000))
TALKER = Model("talker", "1", "echo", task="chat")
WRITER = Model("writer", "1", "echo_chat")
MODELS = Registry([EMBEDDER, TALKER, WRITER, Model("echo", "1", "echo")])
ASKED = {"endpoint": "/v1/embeddings", "prefix": "b_", "created": 17, "model": "minilm"}
CHAT = ASKED | {"endpoint": "/v1/chat/completions", "model": "talker"}
PROMPTS = ASKED | {"endpoint": "/v1/completions", "model": "writer"}
HI = [{"role": "user", "content": "hi"}]


def asks(url: str, **body: Any) -> dict[str, Any]:
    return {"custom_id": "a", "method": "POST", "url": f"/v1/{url}", "body": body}


GOOD = asks("embeddings", model="minilm", input="a text")
TALK = asks("chat/completions", model="talker", messages=HI, n=1)
PROMPT = asks("completions", model="writer", prompt="hi", max_tokens=3)


def read(lines: Iterable[bytes | None], asked: dict[str, Any]) -> tuple[list[bytes], list[int]]:
    """The rows of a batch, and the inputs of its slices."""
    with ExitStack() as opened:

        def open_intake(name: str) -> Intake:
            strict, model = "on_invalid" not in asked, MODELS.resolve(name)
            intake = Intake(ids.new(), "acme", model, strict=strict, max_items=1000)
            opened.callback(intake.close)
            return intake

        taken = dialect("openai").read_items(open_intake, lines, asked)
        return [*taken.rows], [*taken.inputs]


def take(*lines: Any, asked: dict[str, Any] = ASKED) -> list[tuple[Any, ...]]:
    """Rows of (seq, custom_id, params, reply, input), of lines: objects, or bytes as they are."""
    raw = [one if isinstance(one, bytes | None) else json.dumps(one).encode() for one in lines]
    rows = [row.decode().rstrip("\n").split("\t") for row in read(raw, asked)[0]]
    none = {"\\N": None}
    return [(int(seq), *(none.get(value, value) for value in rest)) for _, _, seq, *rest in rows]


def faults(*lines: Any, asked: dict[str, Any] = ASKED) -> list[tuple[Any, ...]]:
    """(line, code, param) of each."""
    with pytest.raises(Invalid) as caught:
        take(*lines, asked=asked)
    return [
        (fault.line, fault.code, ".".join(map(str, fault.loc)) or None)
        for fault in caught.value.faults
    ]


def test_a_slice_counts_the_inputs_of_lists_and_the_last_line_needs_no_end() -> None:
    body = {"model": "minilm", "input": ["a text"] * 7}
    lines = [json.dumps(GOOD | {"custom_id": f"{n}", "body": body}).encode() for n in range(3)]
    assert read(lines, ASKED)[1] == [7]
    file = io.BytesIO(json.dumps(GOOD).encode())
    assert len(read(bounded_lines(file, 9999), ASKED)[0]) == 1
    assert len(take(GOOD, b"\n", b" \n")) == 1, "blank lines at the end are no requests"
    assert [line for line, *_ in faults(b"\n", GOOD, b"\n")] == [1]


def body(**more: Any) -> dict[str, Any]:
    return GOOD | {"body": GOOD["body"] | more}


def test_lines_become_items_of_bodies_without_their_model_and_base64_is_remembered() -> None:
    found = take(GOOD, body(normalize=False, user="u") | {"custom_id": "b"})
    assert found == [
        (0, "a", None, None, '"a text"'),
        (1, "b", '{"normalize":false}', None, '"a text"'),
    ]
    vllms = {"add_special_tokens": True, "priority": 0, "normalize": None}
    [(_, _, params, _, _)] = take(body(use_activation=False, **vllms))
    assert params == '{"normalize":false}'
    asked = [body(encoding_format=name) | {"custom_id": name} for name in ("float", "base64")]
    assert [row[3] for row in take(*asked)] == [None, '"base64"']
    cuts = [body(truncate_prompt_tokens=most) | {"custom_id": str(most)} for most in (5, -1, None)]
    assert [row[2] for row in take(*cuts)] == ['{"truncate":5}', '{"truncate":512}', None]
    silent = TALK | {"body": TALK["body"] | {"stream": False}}
    [(_, _, _, _, input)] = take(silent, asked=CHAT)
    assert json.loads(input) == {"messages": HI, "n": 1}
    [(_, custom_id, params, _, input)] = take(PROMPT, asked=PROMPTS)
    assert (custom_id, params) == ("a", None)
    assert json.loads(input) == {"prompt": "hi", "max_tokens": 3}


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in GOOD.items() if name != key}


def test_what_is_wrong_with_a_line_is_named_with_its_number() -> None:
    cases = [
        (b"{", "invalid_json_line", None),
        (b"\n", "invalid_json_line", None),
        (b"[]", "invalid_json_line", None),
        (None, "too_long", None),
        *((without(key), "missing_required_parameter", key) for key in GOOD),
        (GOOD | {"custom_id": 7}, "invalid_custom_id", "custom_id"),
        (GOOD | {"custom_id": ""}, "invalid_custom_id", "custom_id"),
        (GOOD | {"custom_id": "a\nb"}, "invalid_custom_id", "custom_id"),
        (GOOD | {"method": "GET"}, "invalid_method", "method"),
        (GOOD | {"url": "/v1/completions"}, "invalid_url", "url"),
        (GOOD | {"url": ["/v1/embeddings"]}, "invalid_url", "url"),
        (GOOD | {"body": []}, "invalid_type", "body"),
        (body(model=None), "missing_required_parameter", "body.model"),
        (body(model=7), "mismatched_model", "body.model"),
        (body(model="echo"), "mismatched_model", "body.model"),
        (body(model="minilm@1"), "mismatched_model", "body.model"),
        (body(stream=True), "unsupported_parameter", "body.stream"),
        (body(input=None), "invalid_type", "body.input"),
        (body(input="\0"), "nul", "body.input"),
        (body(input=[]), "invalid_value", "body.input"),
        (body(input="x" * 2000), "too_long", "body"),
        (body(input="x" * 1990, dimensions=64), "too_long", "body"),
        (body(encoding_format="hex"), "invalid_value", "body.encoding_format"),
        (body(encoding_format=["hex"]), "invalid_value", "body.encoding_format"),
        (body(temperature=1), "unknown_parameter", "body.temperature"),
        (body(truncate=1), "invalid_value", "body.truncate"),
        (body(use_activation=1), "invalid_type", "body.use_activation"),
        (body(use_activation=True, normalize=False), "invalid_value", "body.use_activation"),
        (
            body(truncate_prompt_tokens=5, truncate=7),
            "invalid_value",
            "body.truncate_prompt_tokens",
        ),
        (body(embed_dtype="float16"), "invalid_value", "body.embed_dtype"),
        (body(truncate_prompt_tokens=2), "invalid_value", "body.truncate_prompt_tokens"),
        (body(truncate_prompt_tokens="5"), "invalid_type", "body.truncate_prompt_tokens"),
    ]
    for (line, code, param), case in each(cases):
        with case:
            assert faults(GOOD | {"custom_id": "z"}, line, GOOD | {"custom_id": "y"}) == [
                (2, code, param)
            ]


def test_a_first_line_without_a_model_to_go_by_fails_the_whole() -> None:
    cases = [
        ("no-such-model", "model_not_found"),
        ("echo", "model_not_supported"),
        (None, "missing_required_parameter"),
        (7, "invalid_type"),
    ]
    for (model, code), case in each(cases):
        with case:
            assert faults(body(model=model)) == [(1, code, "body.model")]


def test_faults_before_the_first_model_are_named_too_but_no_more_than_anybody_reads() -> None:
    assert faults(b"{", without("url"), GOOD, GOOD) == [
        (1, "invalid_json_line", None),
        (2, "missing_required_parameter", "url"),
        (3, "duplicate_custom_id", "custom_id"),
        (4, "duplicate_custom_id", "custom_id"),
    ]
    assert faults() == [(None, "empty_file", None)]
    assert len(faults(*[b"{"] * (MAX_FAULTS + 5))) == MAX_FAULTS


def test_what_is_said_of_a_long_line_is_short() -> None:
    cases = [
        GOOD | {"url": "u" * 10_000},
        GOOD | {"method": "m" * 10_000},
        body(**{"n" * 10_000: 1}),
        body(model="m" * 10_000),
    ]
    for line, case in each(cases):
        with case:
            with pytest.raises(Invalid) as caught:
                take(line)
            [fault] = caught.value.faults
            assert len(json.dumps(fault.as_json())) < 1500


def test_a_line_that_quotes_half_a_surrogate_pair_is_stored_with_its_fault() -> None:
    lines = [body(**{"\ud800": 1}), GOOD | {"\udfff": "x"}, body(model="\ud800"), GOOD]
    for line in lines[:-1]:
        rows = take(line, GOOD | {"custom_id": "b"}, asked=ASKED | {"on_invalid": "fail_item"})
        assert len(rows) == 2
        assert "\ufffd" not in rows[1][4]


def test_a_conversation_or_prompt_that_is_refused_names_its_field() -> None:
    chats = [
        ({"model": "talker", "messages": None}, "missing_required_parameter", "body.messages"),
        ({"model": "talker", "messages": []}, "invalid_type", "body.messages"),
        ({"model": "writer", "messages": HI, "n": 0}, "invalid_value", "body.n"),
    ]
    prompts = [
        ({"model": "writer"}, "missing_required_parameter", "body.prompt"),
        ({"model": "writer", "prompt": "x", "top_p": 2}, "invalid_value", "body.top_p"),
        ({"model": "writer", "prompt": "x", "suffix": "y"}, "invalid_value", "body.suffix"),
        ({"model": "talker", "prompt": "x"}, "model_not_supported", "body.model"),
    ]
    for (body, code, param), case in each(chats + prompts):
        with case:
            line, asked = (TALK, CHAT) if "messages" in body else (PROMPT, PROMPTS)
            assert faults(line | {"body": body}, asked=asked) == [(1, code, param)]


def row(**more: Any) -> dict[str, Any]:
    plain = {"seq": 3, "custom_id": "a", "outcome": "succeeded", "attempts": 1, "units": 5}
    none = dict.fromkeys(("output", "error", "reply", "version", "truncated"))
    return plain | none | more


def written(asked: dict[str, Any] = ASKED, **more: Any) -> tuple[str, dict[str, Any]]:
    part, line = dialect("openai").result_line(row(**more), "tokens", asked)
    assert b"\n" not in line
    return part, json.loads(line)


def body_of(asked: dict[str, Any] = ASKED, **more: Any) -> dict[str, Any]:
    its: dict[str, Any] = written(asked, **more)[1]["response"]["body"]
    return its


def test_a_text_that_was_cut_or_is_too_long_is_told() -> None:
    usage = body_of(output="[0.5,1.0]", truncated=9)["usage"]
    assert usage == {"prompt_tokens": 5, "total_tokens": 5, "truncated": 9}
    assert "truncated" not in body_of(output="[0.5,1.0]")["usage"]
    message = "the text is too long: This model's maximum context length is 8 tokens. …"
    error = json.dumps({"code": "invalid_input", "message": message})
    part, line = written(outcome="failed", error=error)
    assert (part, line["response"]["status_code"]) == ("errors", 400)
    assert line["response"]["body"]["error"]["code"] == "context_length_exceeded"


def test_a_vector_is_an_answer_to_a_request_for_embeddings() -> None:
    part, line = written(output="[0.5,1.0]")
    assert part == "results"
    assert (line["id"], line["custom_id"], line["error"]) == ("batch_req_b_3", "a", None)
    assert (line["response"]["status_code"], line["response"]["request_id"]) == (200, "req_b_3")
    answer = CreateEmbeddingResponse.model_validate(line["response"]["body"], strict=True)
    assert (answer.data[0].embedding, answer.model) == ([0.5, 1.0], "minilm")
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (5, 5)
    assert body_of(output="[0.5]", version="7")["model"] == "minilm@7", "that of a routed batch"


def test_a_long_output_comes_as_bytes_and_vectors_are_embeddings_of_32_bit_floats() -> None:
    for output, case in each(["[0.5]", b"[0.5]"]):
        with case:
            for reply, vector in ((None, [0.5]), ('"base64"', "AAAAPw==")):
                [one] = body_of(output=output, reply=reply)["data"]
                assert one["embedding"] == vector
            assert body_of(CHAT, output=output)["choices"][0]["message"]["content"] == "[0.5]"
    data = body_of(output="[[0.5],[1.0]]")["data"]
    assert [(one["index"], one["embedding"]) for one in data] == [(0, [0.5]), (1, [1.0])]
    for output in ("[0.1,1e-7]", "[[0.1,1e-7],[3.0,4.0]]"):
        data = body_of(output=output, reply='"base64"')["data"]
        wanted = np.atleast_2d(np.asarray(json.loads(output), "<f4"))
        found = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in data]
        assert np.array_equal(found, wanted)


def test_a_text_is_what_the_assistant_said_and_only_tokens_are_counted() -> None:
    answer = ChatCompletion.model_validate(body_of(CHAT, output='"hello"'), strict=True)
    assert (answer.model, answer.created) == ("talker", 17)
    assert answer.choices[0].message.content == "hello"
    output = {"id": "x", "choices": [{"index": 0}], "model": "another"}
    counted = {"prompt_tokens": 5, "completion_tokens": 0, "total_tokens": 5}
    shown = output | {"object": "chat.completion", "usage": counted}
    assert body_of(CHAT, output=json.dumps(output)) == shown
    own = output | {"usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    assert body_of(CHAT, output=json.dumps(own)) == own | {"object": "chat.completion"}
    for asked, output in ((ASKED, "[0.5]"), (CHAT, '"hello"')):
        _, line = dialect("openai").result_line(row(output=output), "characters", asked)
        assert json.loads(line)["response"]["body"]["usage"]["total_tokens"] == 0


def test_what_failed_is_an_answer_in_the_file_of_errors() -> None:
    cases = [
        ("invalid_input", 400),
        ("rate_limited", 429),
        ("transient", 503),
        ("engine_error", 500),
    ]
    for (code, status), case in each(cases):
        with case:
            error = json.dumps({"code": code, "message": "why"})
            part, line = written(outcome="failed", error=error)
            assert (part, line["response"]["status_code"], line["error"]) == (
                "errors",
                status,
                None,
            )
            said = line["response"]["body"]["error"]
            assert (said["code"], said["message"]) == (code, "why")


def test_what_was_not_run_has_no_answer_and_what_is_no_vector_is_an_error_of_its_line() -> None:
    for outcome in ("cancelled", "expired"):
        part, line = written(outcome=outcome)
        assert (part, line["response"]) == ("errors", None)
        assert line["error"]["code"] == f"batch_{outcome}"
    for output, case in each(['"text"', "{}", '["a"]', "null", "[1e300]", '[[1.0], "a"]']):
        with case:
            part, line = written(output=output, reply='"base64"')
            assert (part, line["response"]["status_code"]) == ("errors", 500)
            assert line["response"]["body"]["error"]["code"] == "invalid_output"


def test_a_vector_is_a_list_a_tuple_or_an_array() -> None:
    problem = dialect("openai").output_problem
    half = np.array([60_000.0, 1.0], np.float16)
    vectors: list[Any] = [[0.5, 1], (0.5, 1.0), [(0.5,)], half, np.array([[0.5]]), np.array([1])]
    for output, case in each(vectors):
        with case:
            assert problem(output, "embedding") is None
    for output, case in each(["text", {}, [None], np.array([1e300]), np.array(1.0)]):
        with case:
            assert problem(output, "embedding")


def test_tool_calls_that_are_no_list_are_none() -> None:
    said = {"choices": [{"message": {"content": "x", "tool_calls": True}}]}
    assert dialect("anthropic").output_problem(said, "chat") is None
