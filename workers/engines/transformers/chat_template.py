"""Chat templates, which turn a conversation into the text that a model was trained on.

They are Jinja, come with the model, and run in a sandbox.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from jobs import clock
from jobs.models.engines import huggingface_folder
from jobs.models.inputs.generation import Rendering

_FILE = "chat_template.jinja"
_USUAL = Rendering()
_END = "<millrace: end of the last message>"  # behind a message that is gone on with


class _Generation(Extension):
    """Tag around the assistant's messages, which only training looks at."""

    tags = {"generation"}  # noqa: RUF012  # the interface of Jinja

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """Template of one folder; without one, conversations are refused."""

    def __init__(self, folder: Path) -> None:
        config = huggingface_folder.read(folder, "tokenizer_config.json")
        source = _source(folder, config)
        self._template = _environment().from_string(source) if source else None
        self._tokens = {
            name: _text(config[name])
            for name in ("bos_token", "eos_token", "unk_token", "pad_token")
            if config.get(name)
        }

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        rendering: Rendering = _USUAL,
    ) -> str:
        """Returns the prompt for the assistant's next message, or for more of its last one. Raises
        ValueError."""
        if self._template is None:
            raise ValueError("the model has no chat template; send a prompt to /v1/completions")
        said = list(messages)
        try:
            text = self._template.render(
                **{
                    **rendering.variables,
                    "messages": _ended(said) if rendering.continue_final_message else said,
                    "tools": list(tools) or None,
                    "add_generation_prompt": rendering.add_generation_prompt,
                    **self._tokens,
                }
            )
        except (TemplateError, TypeError) as error:
            raise ValueError(f"messages don't fit the model's chat template: {error}") from error
        if not rendering.continue_final_message:
            return text
        if _END not in text:
            raise ValueError("the model's chat template doesn't show the last message as it is")
        return text[: text.rindex(_END)]


def _ended(messages: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    last = messages[-1]
    return [*messages[:-1], {**last, "content": last["content"] + _END}]


def _source(folder: Path, config: Mapping[str, Any]) -> str:
    if (file := folder / _FILE).is_file():
        return file.read_text()
    found = config.get("chat_template") or ""
    if isinstance(found, list):
        named = {entry["name"]: entry["template"] for entry in found}
        found = named.get("default", "")
    return str(found)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json  # Jinja's own escapes for HTML
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    return environment


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> None:
    raise TemplateError(message)


def _now(pattern: str) -> str:
    return clock.now().strftime(pattern)


def _text(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)
