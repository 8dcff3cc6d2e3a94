"""The table of request fields: what it says of each field is so on every route that has it."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from anthropic.types import message_create_params as messages_params
from anthropic.types.beta import message_create_params as beta
from openai.types import EmbeddingCreateParams
from openai.types.chat import completion_create_params as chat_params
from openai.types.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses import response_create_params as response_params

from api.compat.anthropic.messages.routes import read_message
from api.compat.generation.preparation import OWN_FIELDS, GenerationBody
from api.compat.openai.chat.routes import read_chat, read_completion
from api.compat.openai.embedding_schemas import EmbeddingsRequest, read_embeddings
from api.compat.openai.responses.requests import ResponseBody, read_response
from api.compat.vllm.token_schemas import DetokenizeRequest, TokenizeRequest
from api.compat.vllm.tokens import read_detokenize, read_tokenize
from jobs.dialects.anthropic import item_of
from jobs.dialects.openai_lines import READERS, LineError, body_of
from jobs.dialects.responses.requests import Before
from jobs.errors import Invalid
from jobs.models.builtin_models import SAMPLES
from jobs.models.inputs.fields import FieldError
from jobs.models.inputs.generation import GenerationRequest, parse, parse_all, refuse
from jobs.models.inputs.request_fields.row import Route, Row
from jobs.models.inputs.request_fields.table import ROWS
from jobs.models.model import Model
from ops.generate_request_fields import PAGE, page
from tests.support.cases import each

SCHEMA = {"type": "object", "properties": {}}
FUNCTION = {"name": "weather", "parameters": SCHEMA}
SAID = [{"role": "user", "content": "x"}]
BASES: Mapping[Route, dict[str, Any]] = {
    "chat": {"model": "m", "messages": SAID},
    "completions": {"model": "m", "prompt": "x"},
    "responses": {"model": "m", "input": "x"},
    "messages": {"model": "m", "messages": SAID, "max_tokens": 9},
    "embeddings": {"model": "m", "input": "x"},
    "tokenize": {"model": "m", "messages": SAID},
    "detokenize": {"model": "m", "tokens": [1]},
}
FORMAT = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
CLIENT_TOOL = {"name": "weather", "input_schema": SCHEMA}
WITH_SCHEMA = {"type": "json_schema", "schema": SCHEMA}
_BOTH: dict[str, dict[str, Any]] = {
    "response_format": {"response_format": FORMAT},
    "stream_options": {"stream": True, "stream_options": {}},
}
AROUND: Mapping[Route, dict[str, dict[str, Any]]] = {
    "chat": {
        **_BOTH,
        "tools[]": {"tools": [{"type": "function", "function": FUNCTION}]},
        "tool_choice": {
            "tools": [{"type": "function", "function": FUNCTION}],
            "tool_choice": {"type": "function", "function": {"name": "weather"}},
        },
    },
    "completions": _BOTH,
    "responses": {
        "tools[]": {"tools": [{"type": "function", **FUNCTION}]},
        "tool_choice": {
            "tools": [{"type": "function", **FUNCTION}],
            "tool_choice": {"type": "function", "name": "weather"},
        },
        "text.format": {"text": {"format": {**WITH_SCHEMA, "name": "a"}}},
    },
    "messages": {
        "tools[]": {"tools": [CLIENT_TOOL]},
        "tool_choice": {
            "tools": [CLIENT_TOOL],
            "tool_choice": {"type": "tool", "name": "weather"},
        },
        "output_config.format": {"output_config": {"format": WITH_SCHEMA}},
        "output_format": {"output_format": WITH_SCHEMA},
    },
    "embeddings": {},
    "tokenize": {"tools[]": {"tools": [{"type": "function", "function": FUNCTION}]}},
    "detokenize": {},
}
"""Fields around one that is inside another, by the beginning of its path."""
MODEL = Model("m", "1", "echo_chat")


def around(route: Route, row: Row) -> dict[str, Any]:
    """Returns a request of a route that may have the field."""
    more = (one for path, one in AROUND[route].items() if row.name.startswith(f"{path}."))
    return deepcopy({**BASES[route], **next(more, {})})


def with_field(route: Route, row: Row, value: Any) -> dict[str, Any]:
    """Returns the request with a value of the field."""
    request: Any = around(route, row)
    *path, last = row.name.split(".")
    at = request
    for name in path:
        at = at.setdefault(name.removesuffix("[]"), {})
        at = at[0] if isinstance(at, list) else at
    at[last] = value
    if (route, row.name) == ("tokenize", "prompt"):
        del request["messages"]
    return request  # type: ignore[no-any-return]


def read(route: Route, value: dict[str, Any]) -> tuple[Any, ...]:
    """Returns what a request is read as: of the call, and its input. Raises Invalid, FieldError."""
    if route == "embeddings":
        wanted = read_embeddings(value)
        return (wanted.model_copy(update={"encoding_format": wanted.encoding_format or "float"}),)
    readers: Mapping[Route, Callable[[Any], GenerationBody]] = {
        "chat": read_chat,
        "completions": read_completion,
        "responses": lambda value: read_response(value, Before()),
        "messages": read_message,
        "tokenize": read_tokenize,
        "detokenize": read_detokenize,
    }
    body = readers[route](value)
    [request] = parse_all(body.input)
    if isinstance(body, ResponseBody):  # whose items have new ids
        body = replace(body, items=[{**item, "id": ""} for item in body.items])
    return replace(body, input={}), _plain(request)


def _plain(request: GenerationRequest) -> GenerationRequest:
    """Returns a request whose choice among tools is none where it says what holds without it."""
    use = request.tool_use
    return replace(
        request, tool_use=replace(use, choice=None if use.choice == "auto" else use.choice)
    )


def read_line(route: Route, value: dict[str, Any]) -> Any:
    """Returns what the line of a batch is read as. Raises LineError, Invalid."""
    if route == "messages":
        item, faults = item_of({"custom_id": "a", "params": value}, ())
        if faults:
            raise Invalid("", faults=faults)
        return _plain(parse(item["input"]))
    endpoint = f"/v1/{'chat/completions' if route == 'chat' else route}"
    request = {"method": "POST", "url": endpoint, "body": value}
    model = SAMPLES.resolve("minilm") if route == "embeddings" else MODEL
    return READERS[endpoint](model, body_of(request, endpoint))


def cases(use: str) -> Iterator[tuple[Route, Row]]:
    yield from ((route, row) for row in ROWS for route in row.routes if row.use == use)


def _named(case: tuple[Any, ...]) -> str:
    route, row, *value = case
    return f"{route} {row.name} {value}"


USES = ["call", "input", "label", "refused"]
REFUSALS = (Invalid, FieldError, LineError)


@pytest.mark.parametrize("use", USES)
def test_a_value_that_changes_nothing_passes_on_every_route(use: str) -> None:
    """null too, which stands for an absent field."""
    values = [
        (route, row, value) for route, row in cases(use) for value in (*row.neutral, None)
        if not (value is None and row.name in _NEEDED)
    ]  # fmt: skip
    for (route, row, value), case in each(values, name=_named):
        with case:
            found, expected = (
                read(route, with_field(route, row, value)),
                read(route, around(route, row)),
            )
            # A response repeats what its request had in `text` and `tools`.
            repeated = route == "responses" and row.name.startswith(("text", "tools[]"))
            assert found[repeated:] == expected[repeated:]


_NEEDED = {
    "model", "messages", "prompt", "input", "tokens", "max_tokens", "conversation.id",
    "tools[].type", "tools[].name",
    "tools[].function", "tools[].function.name", "tools[].input_schema",
    "response_format.type", "response_format.json_schema", "response_format.json_schema.schema",
    "tools[].function.parameters", "tools[].parameters", "tools[].description",
    "tools[].function.description", "tools[].function.strict", "response_format.json_schema.name",
    "text.format", "text.format.type", "text.format.name", "text.format.schema",
    "tool_choice.type", "tool_choice.name", "output_config.format", "output_config.format.type",
    "output_config.format.schema", "output_format.type", "output_format.schema",
    "tool_choice.function", "tool_choice.function.name",
}  # fmt: skip
"""Fields that a request of the test, or an object in it, has."""


@pytest.mark.parametrize("use", ["input", "refused"])
def test_it_passes_in_lines_of_batches_too(use: str) -> None:
    found = [
        (route, row, value) for route, row in cases(use) for value in row.neutral
        if route in ("chat", "completions", "responses", "messages", "embeddings")
        and not row.name.startswith("stream_options.")
    ]  # fmt: skip
    for (route, row, value), case in each(found, name=_named):
        with case:
            read_line(route, with_field(route, row, value))


def test_what_is_not_served_is_refused_by_name() -> None:
    for (route, row), case in each(list(cases("refused")), name=_named):
        with case:
            assert _refused_field(route, row, {"asked": "for"}) == _place(row)


def test_a_summary_may_be_asked_for_where_no_reasoning_is() -> None:
    """Inspect asks for one in each response."""
    for (name, length), case in each(
        [*product(("summary", "generate_summary"), ("auto", "concise", "detailed"))]
    ):
        with case:
            asked = {"model": "m", "input": "hi", "reasoning": {name: length}}
            assert read("responses", asked)


def test_a_label_has_its_type() -> None:
    for (route, row), case in each(list(cases("label")), name=_named):
        if route == "embeddings":
            continue
        with case:
            if row.kind == "any":
                read(route, with_field(route, row, 1.5))
            else:
                assert _refused_field(route, row, 1.5) == _place(row)


def test_items_of_earlier_releases_are_taken() -> None:
    """Jobs that were queued before there was the table."""
    labels = [
        "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
        "prompt_cache_retention", "prompt_cache_options", "prediction", "request_id", "priority",
    ]  # fmt: skip
    changes_nothing = {
        "modalities": ["text"], "verbosity": "medium", "reasoning_effort": "none", "suffix": "",
        "function_call": "none", "functions": [], "echo": False, "stream": False, "tools": [],
        "ignore_eos": False, "use_beam_search": False, "skip_special_tokens": True, "best_of": 1,
        "include_stop_str_in_output": False, "stop_token_ids": [], "length_penalty": 1,
        "tool_choice": "none", "parallel_tool_calls": True,
    }  # fmt: skip
    prompts: tuple[dict[str, Any], ...] = {"messages": SAID}, {"prompt": "hi"}
    fields: list[dict[str, Any]] = [
        {name: value} for name in labels for value in (5, 1.5, "x", True, [1], {})
    ]
    fields += [{name: value} for name, value in changes_nothing.items()]
    for (prompt, given), case in each(list(product(prompts, fields))):
        with case:
            assert refuse({**prompt, **given}) is None


def test_a_field_that_no_row_has_is_refused_at_any_depth() -> None:
    places = {(route, row.name.rpartition(".")[0]) for row in ROWS for route in row.routes}
    for (route, outer), case in each(sorted(places)):
        row = Row(f"{outer}.invented" if outer else "invented", (route,), "refused", "any", "")
        with case:
            assert _refused_field(route, row, 1) == _place(row)


def _refused_field(route: Route, row: Row, value: Any) -> str:
    with pytest.raises(REFUSALS) as caught:
        read(route, with_field(route, row, value))
    error = caught.value
    place = error.field if isinstance(error, FieldError) else _first_place(error)
    return place.replace("[0]", ".0")


def _first_place(error: Any) -> str:
    return ".".join(map(str, error.faults[0].loc))


def _place(row: Row) -> str:
    return row.name.replace("[]", ".0")


EXAMPLES: Mapping[str, Any] = {
    "n": 2, "temperature": 0.5, "top_p": 0.5, "presence_penalty": 1, "frequency_penalty": 1,
    "logit_bias": {"1": 1}, "seed": 1, "stop": ["a"], "max_tokens": 3, "max_completion_tokens": 3,
    "top_k": 5, "min_p": 0.5, "repetition_penalty": 1.5, "min_tokens": 1, "prompt_logprobs": 1,
    "max_output_tokens": 3, "prompt": "y", "echo": True,
    "regex": "a", "choice": ["a"], "grammar": "start: \"a\"", "guided_json": SCHEMA,
    "guided_regex": "a", "guided_choice": ["a"], "guided_grammar": "start: \"a\"",
    "structured_outputs": {"regex": "a"}, "structured_outputs.json": SCHEMA,
    "structured_outputs.regex": "a", "structured_outputs.choice": ["a"],
    "structured_outputs.grammar": "start: \"a\"", "structured_outputs.json_object": True,
    "response_format": {"type": "json_object"}, "response_format.type": "json_object",
    "response_format.json_schema": {"schema": {}}, "response_format.json_schema.name": "b",
    "response_format.json_schema.schema": {}, "response_format.json_schema.strict": True,
    "instructions": "y", "previous_response_id": "resp_1",
    "conversation": "conv_1", "conversation.id": "conv_1", "store": False, "background": True,
    "metadata": {"a": "b"}, "include": ["message.output_text.logprobs"],
    "text": {"format": {"type": "json_object"}}, "text.format": {"type": "json_object"},
    "text.format.type": "json_object", "text.format.name": "b", "text.format.schema": {},
    "text.format.strict": True, "tools[].name": "b", "tools[].description": "b",
    "tools[].parameters": {}, "tools[].strict": True, "tools[].input_schema": {"a": 1},
    "tools[].function.name": "b", "tools[].function.description": "b",
    "tools[].function.parameters": {}, "tools[].function.strict": True,
    "tools[].function": {"name": "b"}, "tool_choice": "none", "parallel_tool_calls": False,
    "system": "y", "stop_sequences": ["a"],
    "tool_choice.disable_parallel_tool_use": True,
    "output_config": {"format": {"type": "json_schema", "schema": {}}},
    "output_config.format": {"type": "json_schema", "schema": {}},
    "output_config.format.schema": {}, "output_format.schema": {},
    "output_format": {"type": "json_schema", "schema": {}},
    "encoding_format": "base64", "dimensions": 3, "stream": True, "timeout_ms": 5,
    "first_token_ms": 5, "idle_ms": 5, "stream_options.include_usage": True,
    "stream_options.continuous_usage_stats": True,
    "reasoning_effort": "low", "reasoning": {"effort": "low"}, "reasoning.effort": "low",
    "thinking": {"type": "enabled"}, "thinking.type": "disabled",
    "model": "other", "ignore_eos": True, "stop_token_ids": [1],
    "chat_template_kwargs": {"a": 1}, "add_generation_prompt": False,
    "truncate_prompt_tokens": 5, "bad_words": ["x"],
    "cache_salt": "s", "include_stop_str_in_output": True, "skip_special_tokens": False,
    "return_token_ids": True, "return_tokens_as_token_ids": True,
    "normalize": False, "use_activation": False,
}  # fmt: skip
"""A value of each field that is served, which is read as something else than without it."""
_BY_ROUTE: Mapping[tuple[Route, str], Any] = {
    ("chat", "messages"): [{"role": "user", "content": "y"}],
    ("messages", "messages"): [{"role": "user", "content": "y"}],
    ("responses", "input"): "y",
    ("embeddings", "input"): "y",
    ("tokenize", "messages"): [{"role": "user", "content": "y"}],
    ("tokenize", "tools"): [{"type": "function", "function": FUNCTION}],
    ("tokenize", "add_special_tokens"): True,
    ("tokenize", "continue_final_message"): True,
    ("tokenize", "return_token_strs"): True,
    ("detokenize", "tokens"): [2],
    ("completions", "logprobs"): 2,
    ("chat", "logprobs"): True,
    ("responses", "top_logprobs"): 2,
    ("chat", "continue_final_message"): True,
    ("chat", "add_special_tokens"): True,
    ("completions", "add_special_tokens"): False,
    ("chat", "tools"): [{"type": "function", "function": FUNCTION}],
    ("responses", "tools"): [{"type": "function", **FUNCTION}],
    ("messages", "tools"): [{"name": "weather", "input_schema": SCHEMA}],
    ("messages", "tool_choice"): {"type": "none"},
    ("messages", "tool_choice.type"): "any",
}
_CHECKED_ALONE = {
    "best_of", "top_logprobs", "logprob_token_ids", "stream_options", "tool_choice.type",
    "tool_choice.name", "tool_choice.function", "tool_choice.function.name", "tools[].type",
    "truncation_side",
    "output_config.format.type", "output_format.type",
}  # fmt: skip
"""Fields that go with another one, or have one value."""
_GOING_ON = {
    "messages": [{"role": "assistant", "content": "We"}],
    "continue_final_message": True,
    "add_generation_prompt": False,
}


@pytest.mark.parametrize("use", ["call", "input"])
def test_what_is_served_is_not_ignored(use: str) -> None:
    for (route, row), case in each(list(cases(use)), name=_named):
        if row.name in _CHECKED_ALONE and (route, row.name) not in _BY_ROUTE:
            continue
        with case:
            value = _BY_ROUTE.get((route, row.name), EXAMPLES.get(row.name))
            assert value is not None, "an example is missing"
            changed = with_field(route, row, value)
            same = around(route, row)
            if row.name == "continue_final_message":
                changed["messages"] = [{"role": "assistant", "content": "We"}]
            if (route, row.name) == ("chat", "echo"):
                changed, same = changed | _GOING_ON, same | _GOING_ON
            if row.name == "stream_options.continuous_usage_stats":
                changed["stream_options"]["include_usage"] = True
                same["stream_options"] = {"include_usage": True}
            if "tool_choice" in row.name or row.name == "parallel_tool_calls":
                changed |= {} if "tools" in changed else {"tools": _BY_ROUTE[route, "tools"]}
            assert read(route, changed) != read(route, same)


def test_the_table_has_every_field_of_the_packages_of_openai_and_anthropic() -> None:
    extra = {"extra_headers", "extra_query", "extra_body", "betas"}
    types: list[tuple[Route, Any]] = [
        ("chat", chat_params.CompletionCreateParamsNonStreaming),
        ("completions", CompletionCreateParamsNonStreaming),
        ("responses", response_params.ResponseCreateParamsNonStreaming),
        ("messages", messages_params.MessageCreateParamsNonStreaming),
        ("messages", beta.MessageCreateParamsNonStreaming),
        ("embeddings", EmbeddingCreateParams),
    ]
    for (route, type_), case in each(types):
        with case:
            rows = {row.name for row in ROWS if route in row.routes}
            fields = type_.__required_keys__ | type_.__optional_keys__
            assert fields - extra - rows == set()


def test_schemas_and_readers_have_the_fields_of_the_table() -> None:
    rows = [row for row in ROWS if "embeddings" in row.routes]
    served = {row.name for row in rows if row.use in ("call", "input")}
    assert served < EmbeddingsRequest.model_fields.keys() < {row.name for row in rows}
    for route, schema in (("tokenize", TokenizeRequest), ("detokenize", DetokenizeRequest)):
        served = {
            row.name for row in ROWS
            if route in row.routes and row.use != "refused" and "." not in row.name
        }  # fmt: skip
        assert served == schema.model_fields.keys()
    assert {"model", "stream"} < OWN_FIELDS


def test_the_page_is_that_of_the_table() -> None:
    """Written by python ops/generate_request_fields.py."""
    assert PAGE.read_text() == page()
