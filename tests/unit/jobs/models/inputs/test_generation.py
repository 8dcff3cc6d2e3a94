"""Generation requests: fields that are taken, and those that are refused with their names."""

from collections.abc import Callable
from typing import Any

import pytest

from jobs.models.inputs.fields import FieldError
from jobs.models.inputs.generation import (
    COMPLETION_TOKENS,
    GenerationRequest,
    Rendering,
    Sampling,
    parse,
    parse_all,
    refuse,
)
from tests.support.cases import each

CHAT = {"messages": [{"role": "user", "content": "hello"}]}
PROMPT = {"prompt": "hello"}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def chat(**fields: Any) -> GenerationRequest:
    return parse({**CHAT, **fields})


def completion(**fields: Any) -> GenerationRequest:
    return parse({**PROMPT, **fields})


def refusal(value: Any, parse: Callable[[Any], object] = parse) -> FieldError:
    with pytest.raises(FieldError) as raised:
        parse(value)
    return raised.value


def problem(value: Any) -> str:
    return str(refusal(value))


def test_an_input_alone_has_the_defaults_of_openai_and_parameters_their_usual_forms() -> None:
    assert chat() == GenerationRequest(messages=({"role": "user", "content": "hello"},))
    expected = GenerationRequest(prompt="hello", sampling=Sampling(max_tokens=COMPLETION_TOKENS))
    assert completion() == expected
    sampling = chat(top_k=-1, top_p=0).sampling
    assert sampling.top_k == 0
    assert 0 < sampling.top_p < 1e-3
    assert type(chat(temperature=1).sampling.temperature) is float
    assert chat(max_tokens=3).sampling.max_tokens == 3
    assert chat(max_tokens=3, max_completion_tokens=3).sampling.max_tokens == 3
    assert completion(echo=True, n=2, best_of=2).echo


def test_every_parameter_of_sampling_is_read_and_logprobs_by_the_kind_of_input() -> None:
    alike: dict[str, Any] = {
        "min_tokens": 2, "temperature": 0.0, "top_p": 0.5, "top_k": 40, "min_p": 0.1, "seed": -3,
        "presence_penalty": 1.0, "frequency_penalty": -1.5, "repetition_penalty": 1.2,
    }  # fmt: skip
    given = {"logit_bias": {"15": -100, "7": 2.5}, "stop": ["\n", "END"], "logprobs": True}
    found = chat(max_completion_tokens=7, top_logprobs=3, **alike, **given).sampling
    read = {"logit_bias": {15: -100.0, 7: 2.5}, "stop": ("\n", "END"), "logprobs": 3}
    assert found == Sampling(max_tokens=7, **alike, **read)
    for fields, expected in (({}, None), ({"logprobs": False}, None), ({"logprobs": True}, 0)):
        assert chat(**fields).sampling.logprobs == expected
    assert completion(logprobs=5).sampling.logprobs == 5
    goes_on: dict[str, Any] = {"add_generation_prompt": False, "continue_final_message": True}
    begun = [{"role": "assistant", "content": "We"}]
    found = parse({"messages": begun, **goes_on, "chat_template_kwargs": {"a": [1]}}).rendering
    assert found == Rendering({"a": [1]}, **goes_on)
    assert parse({"messages": begun, "continue_final_message": True}).rendering == Rendering(
        **goes_on
    )
    found = completion(truncate_prompt_tokens=2, truncation_side="right").truncation
    assert (found.cut([1, 2, 3], 9, 1), found.cut([1], 9, 1)) == ([1, 2], [1])
    whole = chat(truncate_prompt_tokens=-1).truncation
    assert whole.cut([1, 2, 3], 3, 1) == whole.cut([1, 2, 3], 3, None) == [2, 3]
    assert whole.cut([1, 2, 3], 4, 4) == [1, 2, 3], "max_tokens is what gives way"
    with pytest.raises(FieldError, match=r"^max_tokens must be below the context of 3 tokens"):
        whole.cut([1, 2, 3], 3, 3)
    assert chat(truncation_side="right") == chat()
    assert completion(cache_salt="s").cache_salt == "s"
    ends: dict[str, Any] = {"include_stop_str_in_output": True, "skip_special_tokens": False}
    expected = Sampling(**ends, ignore_eos=True, stop_token_ids=(5, 7))
    assert chat(**ends, ignore_eos=True, stop_token_ids=[5, 7]).sampling == expected


def test_a_prompt_is_a_text_or_token_ids_and_a_wrong_one_among_several_is_named() -> None:
    for prompt in ("hi", [1, 2], ["hi"], [[1, 2]]):
        [only] = parse_all({"prompt": prompt})
        assert only.prompt in ("hi", [1, 2])
    texts = parse_all({"prompt": ["a", "b"], "n": 2, "temperature": 0})
    found = [(one.prompt, one.n, one.sampling.temperature) for one in texts]
    assert found == [("a", 2, 0.0), ("b", 2, 0.0)]
    assert [one.prompt for one in parse_all({"prompt": [[1], [2, 3]]})] == [[1], [2, 3]]
    cases = [
        ({"prompt": ["a", ""]}, "prompt[1]"),
        ({"prompt": ["a", "b", {}]}, "prompt[2]"),
        ({"prompt": [[1], [2, "x"]]}, "prompt[1]"),
        ({"prompt": ["a"] * 65, "n": 2}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [""]}, "prompt"),
    ]
    for (value, field), case in each(cases):
        with case:
            assert refusal(value, parse_all).field == field


def test_conversations_of_one_input_have_all_else_in_common_and_a_place_each() -> None:
    one, other = ([{"role": "user", "content": text}] for text in ("a", "b"))
    found = parse_all({"messages": [one, other], "n": 2, "seed": 3})
    expected = [parse({"messages": its, "n": 2, "seed": 3}) for its in (one, other)]
    assert found == expected
    said = {"role": "assistant", "content": "Once"}
    goes_on = {"continue_final_message": True, "add_generation_prompt": False}
    cases = [
        ({"messages": [[{"role": "x"}], one]}, "messages[0][0].role"),
        ({"messages": [one, [*other, {"role": "x"}]]}, "messages[1][1].role"),
        ({"messages": [one, []]}, "messages[1]"),
        ({"messages": [one, "x"]}, "messages[1]"),
        ({"messages": [[said], one], **goes_on}, "messages[1]"),
        ({"messages": [one, [said]], **goes_on}, "messages[0]"),
        ({"messages": [one] * 65, "n": 2}, "messages"),
    ]
    for (value, field), case in each(cases):
        with case:
            assert refusal(value, parse_all).field == field


def test_tokens_to_report_go_with_log_probabilities() -> None:
    named: dict[str, Any] = {"logprob_token_ids": [5, 7]}
    assert chat(**named, logprobs=True).sampling.logprob_token_ids == (5, 7)
    assert completion(**named, logprobs=1).sampling.logprob_token_ids == (5, 7)
    for made in (chat, completion):
        with pytest.raises(FieldError, match=r'^logprob_token_ids needs "logprobs"'):
            made(**named)


def test_fields_that_leave_the_output_as_it_is_are_accepted() -> None:
    cases = [
        ("user", "u1"),
        ("metadata", {"k": "v"}),
        ("store", True),
        ("service_tier", "flex"),
        ("safety_identifier", "s"),
        ("prompt_cache_key", "p"),
        ("prompt_cache_retention", "24h"),
        ("prediction", {"type": "content", "content": "x"}),
        ("response_format", {"type": "text"}),
        ("modalities", ["text"]),
        ("tools", []),
        ("audio", None),
        ("stream", False),
    ]
    for (name, value), case in each(cases):
        with case:
            assert chat(**{name: value}) == chat()


def test_an_effort_of_reasoning_is_one_of_those_that_apis_have() -> None:
    assert "reasoning_effort must be one of none, minimal" in problem(
        {**CHAT, "reasoning_effort": "huge"}
    )
    assert "thinking.type must be" in problem({**CHAT, "thinking": {"type": "adaptive"}})
    assert problem({"prompt": "x", "reasoning_effort": "low"}).startswith("reasoning_effort isn't")


def test_fields_that_would_change_the_output_are_refused_by_name() -> None:
    cases = [
        ("audio", {"voice": "alloy"}),
        ("modalities", ["text", "audio"]),
        ("web_search_options", {}),
        ("functions", [{}]),
        ("function_call", "auto"),
        ("moderation", {}),
        ("stream", True),
        ("stream", 0),
        ("model", "other"),
        ("chat_template", "x"),
        ("invented", 1),
    ]
    for (name, value), case in each(cases):
        with case:
            assert problem({**CHAT, name: value}).startswith(f"{name} isn't")
    cases = [
        {"suffix": "end"},
        {"best_of": 2},
        {"best_of": 0},
        {"tools": [TOOL]},
        {"top_logprobs": 1},
    ]
    for fields, case in each(cases):
        with case:
            assert problem({**PROMPT, **fields}).startswith(f"{next(iter(fields))} ")


def test_prompts_are_scored_where_they_are_echoed_with_logprobs_or_asked_for() -> None:
    for fields, expected in (
        ({"logprobs": 3}, None),
        ({"echo": True}, None),
        ({"echo": True, "logprobs": 0}, 0),
        ({"prompt_logprobs": 2}, 2),
        ({"prompt_logprobs": 2, "logprobs": 4, "echo": True}, 4),
        ({"prompt_logprobs": 2, "logprobs": 4}, 2),
    ):
        assert completion(**fields).scored == expected
    assert chat(prompt_logprobs=1).scored == 1


def test_scores_of_a_prompt_are_for_one_choice() -> None:
    assert completion(n=2, echo=True).n == completion(n=2, logprobs=1).n == 2
    for fields, named in (
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
        ({"echo": True, "logprobs": 0}, "echo with logprobs"),
    ):
        error = refusal({**PROMPT, "n": 2, **fields})
        assert (error.field, str(error)) == (
            "n",
            f"n must be 1 beside {named}, which all choices share",
        )


def test_a_completion_may_be_its_echoed_prompt_alone() -> None:
    assert completion(echo=True, max_tokens=0).sampling.max_tokens == 0
    assert completion(echo=True).sampling.max_tokens == 16
    for fields in ({}, {"echo": False}, {"echo": True, "min_tokens": 1}):
        assert refusal({**PROMPT, "max_tokens": 0, **fields}).field in ("max_tokens", "min_tokens")


OUT_OF_RANGE: dict[str, list[Any]] = {
    "temperature": [2.1, -0.1, True, "0"],
    "top_p": [1.1],
    "top_k": [-2],
    "min_p": [1.5],
    "n": [0, 129, 1.0],
    "seed": [2**63, 1.5],
    "presence_penalty": [3],
    "frequency_penalty": [-3],
    "repetition_penalty": [0],
    "max_tokens": [0],
    "max_completion_tokens": [-1],
    "min_tokens": [-1],
    "logit_bias": [[], {"x": 1}, {"1": 101}, {"-1": 1}, {"\u0661": 1}],
    "stop": [3, [""], ["x"] * 17, "x" * 257],
    "logprobs": [1],
    "top_logprobs": [3],
    "truncate_prompt_tokens": [0, -2, "5"],
    "truncation_side": ["middle"],
    "bad_words": ["x", [""], [5], ["x"] * 129, ["x" * 257]],
    "cache_salt": ["", 5, "x" * 1025],
    "stop_token_ids": [5, ["x"], [-1], [True], [1] * 129],
    "ignore_eos": ["yes"],
    "prompt_logprobs": [-1, 21, True],
    "messages": [[], "hello"],
    "tools": [{}],
    "tool_choice": ["required", {"type": "function"}],
    "choice": [[]],
}


def test_a_value_out_of_range_or_in_contradiction_is_refused_with_its_field() -> None:
    cases = [(name, value) for name, values in OUT_OF_RANGE.items() for value in values]
    for (name, value), case in each(cases):
        with case:
            assert refusal({**CHAT, name: value}).field == name
            assert problem({**CHAT, name: value}).startswith(f"{name} ")
    begun = {"messages": [{"role": "assistant", "content": "We"}], "continue_final_message": True}
    refused = [
        ({**CHAT, "continue_final_message": True}, "messages must end with a text"),
        ({**begun, "add_generation_prompt": True}, "continue_final_message needs"),
        ({**CHAT, "chat_template_kwargs": {"tools": []}}, "chat_template_kwargs.tools is set"),
        ({**CHAT, "chat_template_kwargs": {"bos_token": ""}}, "chat_template_kwargs.bos_token is"),
        ({**CHAT, "chat_template_kwargs": []}, "chat_template_kwargs must be an object"),
    ]
    for (value, told), case in each(refused):
        with case:
            assert problem(value).startswith(told)
    assert "max_completion_tokens" in problem({**CHAT, "max_tokens": 1, "max_completion_tokens": 2})
    assert problem({**CHAT, "max_tokens": 3, "min_tokens": 4}).startswith("min_tokens")


def test_either_input_may_be_constrained_but_only_json_may_stand_in_place_of_a_call() -> None:
    for read in (chat, completion):
        assert read().constrained_by == ""
        assert read(regex="a").constrained_by == "regex"
        assert read(response_format={"type": "json_object"}).constrained_by == "response_format"
    wanted = {"response_format": {"type": "json_object"}}
    assert chat(tools=[TOOL], **wanted).constrained_by == "response_format"
    assert chat(tools=[TOOL], tool_choice="required", **wanted).constrained_by == "tool_choice"
    assert chat(tools=[TOOL], tool_choice="none", regex="a").constrained_by == "regex"
    assert problem({**CHAT, "tools": [TOOL], "regex": "a"}).startswith("regex needs")
    assert problem({**CHAT, "regex": "a", "ignore_eos": True}).startswith("ignore_eos can't")
    forced = {"tools": [TOOL], "tool_choice": "required", "ignore_eos": True}
    assert problem({**CHAT, **forced}).startswith("ignore_eos can't be true beside tool_choice")
    assert chat(**{**forced, "tool_choice": "auto"}).sampling.ignore_eos


def test_an_input_is_either_a_conversation_or_a_prompt_that_a_model_takes() -> None:
    for prompt, case in each(["", [], None, 5, ["a", "b"], [1, "a"], [-1], [True]]):
        with case:
            assert problem({"prompt": prompt}).startswith("prompt must be")
    for value, case in each(["hello", None, [], {}, {**CHAT, **PROMPT}]):
        with case:
            assert problem(value).startswith("input must")
    assert refuse({"prompt": ""}) == (
        "doesn't take this input: prompt must be a text or a list of token ids, and not be empty"
    )
    assert refuse(CHAT) is None
