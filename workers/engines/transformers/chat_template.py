"""Chat templates, which turn a conversation into the text that a model was trained on.

They are Jinja, come with the model, and run in a sandbox.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError, meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from jobs import clock
from jobs.models.engines import huggingface_folder
from jobs.models.inputs.generation import Rendering
from workers.engines.transformers.tool_formats import HERMES, format_of
from workers.engines.transformers.tool_text import with_tools

_FILE, _FOLDER = "chat_template.jinja", "additional_chat_templates"
_DEFAULT, _WITH_TOOLS = "default", "tool_use"  # names of templates
_SPECIAL = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
_PROBE = [{"role": "system", "content": "\ue002"}, {"role": "user", "content": "hi"}]
_USUAL = Rendering()
_END = "<millrace: end of the last message>"  # behind a message that is gone on with
_SEARCHING = frozenset(
    {"split", "rsplit", "partition", "rpartition", "startswith", "endswith", "removeprefix"}
    | {"removesuffix", "strip", "lstrip", "rstrip", "find", "rfind", "index", "count", "replace"}
)  # methods and filters that look for their first argument


class _Generation(Extension):
    """Tag around the assistant's messages, which only training looks at."""

    tags = {"generation"}  # noqa: RUF012  # the interface of Jinja

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return [nodes.Scope(body)]


class ChatTemplate:
    """Template of one folder; without one, conversations are refused.

    marked: gives the texts that the template writes, and its tokens, another form.
    """

    def __init__(self, folder: Path, marked: Callable[[str], str] = str) -> None:
        sources = read_sources(folder)
        self._templates = {name: _compiled(text, marked) for name, text in sources.items()}
        self._tokens = {name: marked(text) for name, text in _special_tokens(folder).items()}
        shown = sources.get(_WITH_TOOLS) or sources.get(_DEFAULT, "")
        told = _environment().parse(shown)
        self._reads_tools = "tools" in meta.find_undeclared_variables(told)
        #: of tool calls; one that reads no tools gets them in Hermes' format
        self.call_format = format_of(shown) if self._reads_tools else HERMES
        self._takes_system = self._reads_tools or self._takes_system_messages()

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        rendering: Rendering = _USUAL,
    ) -> str:
        """Returns the prompt for the assistant's next message, or for more of its last one. Raises
        ValueError.

        A template that reads no tools gets them, their calls and results as texts.
        """
        if not self._reads_tools:
            messages = with_tools(messages, tools, system=self._takes_system)
            tools = ()
        return self._render(messages, tools, rendering)

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        rendering: Rendering = _USUAL,
    ) -> str:
        named = self._templates
        template = (tools and named.get(_WITH_TOOLS)) or named.get(_DEFAULT)
        if not template:
            raise ValueError("the model has no chat template; send a prompt to /v1/completions")
        said = list(messages)
        try:
            text = template.render(
                **{
                    "documents": None,
                    **rendering.template_variables,
                    "messages": _ended(said) if rendering.continue_final_message else said,
                    "tools": list(tools) or None,
                    "add_generation_prompt": rendering.add_generation_prompt,
                    **self._tokens,
                }
            )
        except Exception as error:  # of any class: what a template does is the model's
            raise ValueError(f"messages don't fit the model's chat template: {error}") from error
        if not rendering.continue_final_message:
            return text
        if _END not in text:
            raise ValueError("the model's chat template doesn't show the last message as it is")
        return text[: text.rindex(_END)]

    def _takes_system_messages(self) -> bool:
        try:
            return _PROBE[0]["content"] in self._render(_PROBE, ())
        except Exception:  # as templates refuse what they don't take
            return False


def _ended(messages: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    last = messages[-1]
    return [*messages[:-1], {**last, "content": last["content"] + _END}]


def read_sources(folder: Path) -> dict[str, str]:
    """Returns the texts of a folder's templates by their names."""
    found = huggingface_folder.read(folder, "tokenizer_config.json").get("chat_template") or {}
    if isinstance(found, list):
        found = {entry["name"]: entry["template"] for entry in found}
    sources = dict(found) if isinstance(found, dict) else {_DEFAULT: str(found)}
    files = {file.stem: file for file in sorted((folder / _FOLDER).glob("*.jinja"))}
    if (file := folder / _FILE).is_file():
        files[_DEFAULT] = file
    if files:  # in place of those of the configuration
        sources = {name: file.read_text() for name, file in files.items()}
    return sources


def _special_tokens(folder: Path) -> dict[str, str]:
    """Returns the special tokens that have a name of their own, as transformers reads them."""
    tokens = huggingface_folder.read(folder, "tokenizer_config.json")
    if "added_tokens_decoder" not in tokens:
        tokens |= huggingface_folder.read(folder, "special_tokens_map.json")
    return {name: _text(tokens[name]) for name in _SPECIAL if tokens.get(name)}


def _compiled(source: str, marked: Callable[[str], str]) -> Template:
    environment = _environment()
    parsed = environment.parse(source)
    _mark(parsed, marked)
    return environment.from_string(parsed)


def _mark(node: nodes.Node, marked: Callable[[str], str]) -> None:
    """Marks the texts of a template that it may write."""
    if isinstance(node, nodes.TemplateData):
        node.data = marked(node.data)
    elif isinstance(node, nodes.Const) and isinstance(node.value, str):
        node.value = marked(node.value)
    for child in _writing(node):
        _mark(child, marked)


def _writing(node: nodes.Node) -> Iterator[nodes.Node]:
    """Yields the parts of a node, without those with which it compares or searches texts."""
    if isinstance(node, nodes.Compare | nodes.Test):
        return
    called = node.name if isinstance(node, nodes.Filter) else ""
    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
        called = node.node.attr
    sought = {id(one) for one in node.args[:1]} if called in _SEARCHING else ()  # type: ignore[attr-defined]
    yield from (child for child in node.iter_child_nodes() if id(child) not in sought)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json  # Jinja's own escapes for HTML
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Writes JSON with the arguments, and their order, that transformers has."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: str) -> None:
    raise TemplateError(message)


def _now(pattern: str) -> str:
    return clock.now().strftime(pattern)


def _text(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)
