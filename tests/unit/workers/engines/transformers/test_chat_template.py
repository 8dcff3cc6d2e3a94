"""Chat templates: what they may use at Hugging Face, which of several is taken, and tools where the
template knows none."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jinja2 import TemplateError

from jobs.models.inputs.conversation import read_messages
from tests.support.cases import each
from workers.engines.transformers.chat_template import ChatTemplate

TOOL = {"type": "function", "function": {"name": "look", "description": "<é> & 'x'"}}
CALL = {"name": "look", "arguments": '{"at": 100000000000000000000000000001}'}
MESSAGES = read_messages(
    [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": " a\n<b> "},
        {
            "role": "assistant",
            "content": "<think>x</think>\n\nLet me look.",
            "tool_calls": [{"id": "c1", "type": "function", "function": CALL}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c1", "content": "two"},
        {"role": "user", "content": "ok", "name": "ada"},
    ]
)
SNIPPETS = [
    "{{ tools | tojson }}",
    "{{ tools | tojson(separators=(',', ':')) }}",
    "{{ tools | tojson(true) }}",
    "{{ tools | tojson(False, 2) }}",
    "{{ tools | tojson(False, None, (',', ':'), True) }}",
    "{{ tools | tojson(indent=4) }}",
    "{{ tools | tojson(indent='\t') }}",
    "{{ tools | tojson(sort_keys=True, ensure_ascii=True) }}",
    "{{ messages[2].tool_calls | tojson }}",
    "{{ messages | tojson(indent=1) }}",
    "{{ messages[2].tool_calls[0].function.arguments.at + 1 }}",
    "{{ bos_token }}|{{ eos_token }}|{{ unk_token }}",
    "{{ sep_token }}|{{ cls_token }}|{{ mask_token }}|{{ pad_token }}",
    "{{ additional_special_tokens is defined }}{{ documents is defined }}{{ documents }}",
    "{{ tools is none }}{{ add_generation_prompt }}",
    "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
    "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% endfor %}",
    "{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}",
    "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "{% if true %}\n  a\n{% endif %}\n  b\n",
    "  {%- for m in messages -%}  {{ m.role }}\n  {% endfor %}\n",
    "{# a comment #}\n{{ messages[1].content | trim }}!",
    "{{ messages[1]['content'].strip() ~ '\n' }}",
    "{{ messages[2].content.split('</think>')[-1].lstrip('\n') }}",
    "{{ '</think>' in messages[2].content }}",
    "{{ messages[1].content.startswith(' a') and messages[1].content | length == 7 }}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
    "{{ ns.n }}",
    "{% macro say(m, end='.') %}{{ m.role }}{{ end }}{% endmacro %}{{ say(messages[0]) }}",
    "{{ strftime_now('%Y-%m') | length }}",
    "{{ messages | map(attribute='role') | join(', ') }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "{{ messages | rejectattr('name', 'defined') | map(attribute='content') | list }}",
    "{{ dict(a=1, b='<é>') | tojson }}{{ dict.fromkeys(['a'], 1) }}",
    "{{ messages[0].content | upper | replace('KIND', 'good') }}",
    "{% set said %}{{ messages[0].content }}{% endset %}{{ said | indent(2, true) }}",
    "{{ '%s|%05d' % ('a', 7) }}{{ '{}|{:>4}'.format('b', 8) }}",
    "{{ messages[1].content | e }}{{ messages[1].content | safe }}",
    "{{ (messages | last).name | default('nobody') }}{{ messages[1].name | default('nobody') }}",
    "{% for key, value in tools[0].function.items() %}{{ key }}={{ value }};{% endfor %}",
    "{{ messages[::-1][0].role }}{{ messages[1:] | length }}{{ range(3) | list }}",
    "{{ messages[0].missing }}{{ messages[0].get('missing', 'none') }}",
    "{% if messages[0].role == 'system' and not (tools is none) %}yes{% else %}no{% endif %}",
    "{{ raise_exception('no ' ~ messages[0].role) }}",
    "{{ messages.append(1) }}",
    "{{ ''.__class__.__mro__ }}",
]
TOKENS: dict[str, Any] = {
    "bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>"},
    "unk_token": None, "sep_token": "[SEP]", "cls_token": "[CLS]", "mask_token": "[MASK]",
}  # fmt: skip


def saved(folder: Path, template: Any, **config: Any) -> Path:
    content = {**TOKENS, "chat_template": template, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(content))
    return folder


REFUSED = "messages don't fit the model's chat template: "


def said(render: Callable[[], str]) -> str:
    """Returns what a template renders, or why it refuses."""
    try:
        return render()
    except (TemplateError, ValueError) as error:
        return "refused: " + str(error).removeprefix(
            "messages don't fit the model's chat template: "
        )


@pytest.mark.heavy
def test_templates_render_as_transformers_compiles_them(tmp_path: Path) -> None:
    from transformers.utils.chat_template_utils import _compile_jinja_template

    tokens = {name: token for name, token in TOKENS.items() if token} | {"eos_token": "</s>"}
    for snippet, case in each(SNIPPETS):
        template = snippet + "{{ tools and '' }}"  # it reads them
        with case:
            ours = ChatTemplate(saved(tmp_path, template))
            theirs = partial(
                _compile_jinja_template(template).render,
                messages=list(MESSAGES),
                documents=None,
                add_generation_prompt=True,
                **tokens,
            )
            for tools in ([TOOL], []):
                expected = said(partial(theirs, tools=tools or None))
                assert said(partial(ours.render, MESSAGES, tools)) == expected


def test_the_template_for_tools_is_taken_where_there_are_some(tmp_path: Path) -> None:
    sources = {"default": "plain", "tool_use": "{{ tools | length }} tools", "rag": "{{ x }}"}
    named = [{"name": name, "template": text} for name, text in sources.items()]
    chat = ChatTemplate(saved(tmp_path, named))
    assert chat.render(MESSAGES, ()) == "plain"
    assert chat.render(MESSAGES, [TOOL]) == "1 tools"
    alone = ChatTemplate(saved(tmp_path, named[1:]))
    assert alone.render(MESSAGES, [TOOL]) == "1 tools"
    with pytest.raises(ValueError, match="no chat template"):
        alone.render(MESSAGES, ())
    folder = tmp_path / "additional_chat_templates"
    folder.mkdir()
    (folder / "tool_use.jinja").write_text("{{ tools[0].function.name }}")
    (tmp_path / "chat_template.jinja").write_text("from a file")
    files = ChatTemplate(tmp_path)
    assert (files.render(MESSAGES, ()), files.render(MESSAGES, [TOOL])) == ("from a file", "look")


def test_special_tokens_of_older_folders_have_a_file_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": {"content": "<bos>"}}')
    template = "{{ bos_token }}{{ sep_token }}"
    assert ChatTemplate(saved(tmp_path, template)).render(MESSAGES, ()) == "<bos>[SEP]"
    newer = saved(tmp_path, template, added_tokens_decoder={})
    assert ChatTemplate(newer).render(MESSAGES, ()) == "<s>[SEP]"


LINES = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
SYSTEMLESS = "{% if messages[0].role == 'system' %}{{ raise_exception('none') }}{% endif %}" + LINES
UNSAID = LINES.replace("messages %}", "messages if m.role != 'system' %}")
TOLD = f"""# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{json.dumps(TOOL, ensure_ascii=False)}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
HISTORY = f"""user:  a
<b> 
assistant: <think>x</think>

Let me look.
<tool_call>
{{"name": "look", "arguments": {CALL["arguments"]}}}
</tool_call>
user: <tool_response>
one
</tool_response>
<tool_response>
two
</tool_response>
user: ok
"""


def test_a_template_that_reads_no_tools_gets_them_as_texts(tmp_path: Path) -> None:
    chat = ChatTemplate(saved(tmp_path, LINES))
    assert chat.render(MESSAGES, [TOOL]) == f"system: Be kind.\n\n{TOLD}\n{HISTORY}"
    assert chat.render(MESSAGES, ()) == f"system: Be kind.\n{HISTORY}"
    assert chat.render(MESSAGES[1:], [TOOL]) == f"system: {TOLD}\n{HISTORY}"
    hello = read_messages([{"role": "user", "content": "hello"}])
    assert chat.render(hello, ()) == "user: hello\n"
    for template, case in each([SYSTEMLESS, UNSAID]):
        with case:
            other = ChatTemplate(saved(tmp_path, template))
            assert other.render(hello, [TOOL]) == f"user: {TOLD}\n\nhello\n"
