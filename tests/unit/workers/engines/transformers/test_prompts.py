"""Prompts: conversations by the model's template, and requests that never reach the model."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.models.inputs import generation
from jobs.models.inputs.generation import Rendering
from tests.support.cases import each
from tests.support.generation import tiny_llama
from workers.engines.generator import Prompt
from workers.engines.transformers.chat_template import ChatTemplate
from workers.engines.transformers.prompts import Prompts

CONTEXT = 40
TOO_LONG = (
    "^prompt is too long: This model's maximum context length is 40 tokens. However, you requested "
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("prompts")
    tiny_llama.save_tokenizer(made)
    return made


def prompt(folder: Path, **value: Any) -> Prompt:
    return Prompts(folder, tiny_llama.VOCABULARY, CONTEXT).prompt(generation.parse(value))


def rendered(
    folder: Path, template: str, *messages: dict[str, Any], tools: Any = (), **rendering: Any
) -> str:
    config = {"chat_template": template, "bos_token": {"content": "<s>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return ChatTemplate(folder).render(messages, tools, Rendering(**rendering))


def test_a_conversation_is_rendered_with_its_special_tokens(folder: Path) -> None:
    made = prompt(folder, messages=[{"role": "user", "content": "hi"}])
    assert made.text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert made.tokens[0] == 0
    assert made.size == len(made.tokens)


def test_an_answer_goes_on_with_the_last_message_whatever_the_template_writes_behind_it(
    folder: Path, tmp_path: Path
) -> None:
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "an end "}]
    made = prompt(folder, messages=said, add_generation_prompt=False, continue_final_message=True)
    assert made.text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nan end "
    trimming = "{% for m in messages %}{{ m.content | trim }}<end>{% endfor %}"
    goes_on = {"add_generation_prompt": False, "continue_final_message": True}
    assert rendered(tmp_path, trimming, *said, **goes_on) == "hi<end>an end "
    with pytest.raises(ValueError, match="doesn't show the last message"):
        rendered(tmp_path, "{{ messages[0].content }}", *said, **goes_on)
    assert prompt(folder, messages=said[:1], add_generation_prompt=False).text == (
        "<|im_start|>user\nhi<|im_end|>\n"
    )


def test_variables_of_a_request_reach_the_template(tmp_path: Path) -> None:
    template = (
        "{{ bos_token }}{% if not enable_thinking %}quickly: {% endif %}{{ messages[0].content }}"
    )
    said, variables = {"role": "user", "content": "hi"}, {"enable_thinking": True, "x": [1]}
    assert rendered(tmp_path, template, said) == "<s>quickly: hi"
    assert rendered(tmp_path, template, said, variables=variables) == "<s>hi"
    with pytest.raises(ValueError, match="chat template"):
        rendered(tmp_path, "{{ x + 'a' }}", said, variables=variables)


@pytest.mark.parametrize(
    ("effort", "variables", "shown"),
    [
        (None, {}, "thinks "),
        ("none", {}, "none"),
        ("minimal", {}, "minimal"),
        ("high", {}, "thinks high"),
        ("high", {"enable_thinking": False}, "high"),
    ],
)
def test_an_effort_of_reasoning_reaches_templates_that_look_at_it(
    folder: Path, tmp_path: Path, effort: str | None, variables: Any, shown: str
) -> None:
    """The template of Qwen3 looks at `enable_thinking`, that of gpt-oss at `reasoning_effort`."""
    said = [{"role": "user", "content": "hi"}]
    asked = {"reasoning_effort": effort, "chat_template_kwargs": variables}
    assert prompt(folder, messages=said, **asked).text == prompt(folder, messages=said).text
    looks = "{% if enable_thinking | default(true) %}thinks {% endif %}{{ reasoning_effort }}"
    rendering = generation.parse({"messages": said, **asked}).rendering
    given = {"variables": rendering.variables, "effort": rendering.effort}
    assert rendered(tmp_path, looks, *said, **given) == shown


def test_calls_are_in_the_format_of_the_template_unless_their_form_is_enforced(
    tmp_path: Path,
) -> None:
    tiny_llama.save_tokenizer(tmp_path, "{% if tools %}[TOOL_CALLS]{% endif %}{{ messages }}")
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    asked = {"messages": [{"role": "user", "content": "x"}], "tools": [tool]}
    for more, form in (
        ({}, "mistral"),
        ({"tools": []}, ""),
        ({"tool_choice": "none"}, ""),
        ({"tool_choice": "required"}, ""),
    ):
        shown = Prompts(tmp_path, tiny_llama.VOCABULARY, 1000)
        assert shown.prompt(generation.parse(asked | more)).call_format == form
    told = Prompts(tmp_path, tiny_llama.VOCABULARY, 1000, "hermes")
    assert told.prompt(generation.parse(asked)).call_format == ""


def test_tools_reach_the_template_unless_none_may_be_chosen(folder: Path) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    value = {"messages": [{"role": "user", "content": ""}], "tools": [tool]}
    chat = Prompts(folder, tiny_llama.VOCABULARY, 1000)
    assert '"look"' in chat.prompt(generation.parse(value)).text
    assert '"look"' not in chat.prompt(generation.parse(value | {"tool_choice": "none"})).text


def test_token_ids_are_taken_as_they_are_with_their_text_if_they_leave_one(folder: Path) -> None:
    tokens = list(prompt(folder, prompt="hi").tokens)
    assert prompt(folder, prompt=tokens).text == "hi"
    assert list(prompt(folder, prompt=tokens).tokens) == tokens
    assert prompt(folder, prompt=[0] * (CONTEXT - 1)).size == CONTEXT - 1


def test_tokens_and_their_text_are_told_also_of_a_long_prompt(folder: Path) -> None:
    made = Prompts(folder, tiny_llama.VOCABULARY, CONTEXT)
    for asked, case in each([
        {"prompt": "Grüße aus Köln 猫"},
        {"prompt": "one two " * CONTEXT},
        {"messages": [{"role": "user", "content": "hi"}]},
    ]):  # fmt: skip
        with case:
            found = made.tokenized(generation.parse(asked))
            text, tokens = made._tokens(generation.parse(asked))  # noqa: SLF001
            assert (found.tokens, found.context_tokens) == (tokens, CONTEXT)
            assert made.text(found.tokens) == text
            assert len(found.texts) == len(tokens)
    assert made.tokenized(generation.parse({"prompt": " two"})).texts == ["Ġtwo"]
    for tokens, wrong in (([5, 320], r"^tokens\[1\] is 320, "), ([10**30], "is 10{30}, ")):
        with pytest.raises(ValueError, match=wrong):
            made.text(tokens)


def test_the_tokenizers_special_tokens_come_as_asked_for(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_bytes())
    names = "<|im_start|>", "<|im_end|>"
    special = {text: {"id": text, "ids": [id], "tokens": [text]} for id, text in enumerate(names)}
    first, last = ({"SpecialToken": {"id": text, "type_id": 0}} for text in names)
    single = [first, {"Sequence": {"id": "A", "type_id": 0}}, last]
    around = {"type": "TemplateProcessing", "single": single, "pair": single}
    tokenizer["post_processor"] = around | {"special_tokens": special}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    text, chat = {"prompt": "hi"}, {"messages": [{"role": "user", "content": "hi"}]}
    for asked, added, usual in ((text, False, True), (chat, True, False)):
        plain = list(prompt(folder, **asked).tokens)
        changed = [0, *plain, 1] if added else plain
        expected = [0, *plain, 1] if usual else plain
        assert list(prompt(tmp_path, **asked, add_special_tokens=added).tokens) == changed
        assert list(prompt(tmp_path, **asked, add_special_tokens=usual).tokens) == expected
        assert list(prompt(tmp_path, **asked).tokens) == expected


def test_a_long_prompt_is_cut_where_that_is_asked_for(folder: Path) -> None:
    tokens = [*range(100, 160)]
    cases = [
        ({"truncate_prompt_tokens": 4}, tokens[-4:]),
        ({"truncate_prompt_tokens": 4, "truncation_side": "right"}, tokens[:4]),
        ({"truncate_prompt_tokens": -1, "max_tokens": 10}, tokens[10 - CONTEXT :]),
        ({"truncate_prompt_tokens": -1, "max_tokens": CONTEXT, "prompt": tokens[:9]}, tokens[:9]),
    ]
    for (fields, expected), case in each(cases):
        with case:
            made = prompt(folder, **{"prompt": tokens, **fields})
            assert (list(made.tokens), made.size) == (expected, len(expected))
            whole = len(fields.get("prompt", tokens))
            assert made.truncated == whole - made.size
    made = prompt(folder, prompt="one two", truncate_prompt_tokens=2)
    assert made.text == prompt(folder, prompt=list(made.tokens)).text
    assert prompt(folder, prompt="x" * 10_000, truncate_prompt_tokens=3).size == 3
    with pytest.raises(ValueError, match="too long"):
        prompt(folder, prompt=tokens, truncate_prompt_tokens=50)
    with pytest.raises(ValueError, match=r"^max_tokens must be below the context of 40 tokens"):
        prompt(folder, prompt=tokens, truncate_prompt_tokens=-1, max_tokens=CONTEXT)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"prompt": [tiny_llama.VOCABULARY]}, "token ids must be 0 to 319"),
        ({"prompt": [0] * CONTEXT}, TOO_LONG + r"56 tokens \(40 in the messages, 16 in the"),
        ({"prompt": "x" * 10_000}, TOO_LONG + r"10000 characters\. Please"),
        ({"prompt": "\ud800"}, "surrogate"),
        ({"prompt": "a", "logit_bias": {"320": 1}}, "logit_bias"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, "no tools"),
    ],
)
def test_a_request_that_the_model_can_not_serve_is_refused(
    folder: Path, value: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        prompt(folder, **value)


def test_a_template_is_a_file_or_in_the_configuration_and_without_it_prompts_are_taken(
    tmp_path: Path,
) -> None:
    tiny_llama.save_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    messages = [{"role": "user", "content": "hi"}]
    assert prompt(tmp_path, messages=messages).text == "hi!", "the file comes first"
    for name in ("chat_template.jinja", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    assert prompt(tmp_path, prompt="hi").size
    with pytest.raises(ValueError, match="no chat template"):
        prompt(tmp_path, messages=messages)


def test_templates_may_use_what_they_do_at_hugging_face(tmp_path: Path) -> None:
    template = (
        "{{ bos_token }}{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
        "{{ strftime_now('%Y') | length }}{{ {'a': '<é>'} | tojson }}"
    )
    said = rendered(tmp_path, template, {"role": "user", "content": "hi"}, {"role": "user"})
    assert said == '<s>hi4{"a": "<é>"}'


@pytest.mark.parametrize("template", ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}"])
def test_a_template_runs_in_a_sandbox(tmp_path: Path, template: str) -> None:
    with pytest.raises(ValueError, match="chat template"):
        rendered(tmp_path, template, {"role": "user", "content": "hi"})


def test_no_more_likeliest_tokens_are_asked_for_than_there_are(folder: Path) -> None:
    few = Prompts(folder, 5, CONTEXT)
    for name in ("logprobs", "prompt_logprobs"):
        with pytest.raises(ValueError, match=f"^{name} must be at most 5"):
            few.prompt(generation.parse({"prompt": [1], name: 6}))
