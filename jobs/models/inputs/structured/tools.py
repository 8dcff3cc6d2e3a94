"""Tools of a generation request, and which of them must be called."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.models.inputs.fields import FieldError, Fields
from jobs.models.inputs.structured.caps import check_schema, check_size

MOST_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CHOICES = (None, "auto", "none", "required")


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Tools that a model may call."""

    tools: Sequence[Mapping[str, Any]] = ()  #: OpenAI's objects
    choice: Any = None  #: auto, none, required, or OpenAI's object with the name of a function
    parallel: bool = True  #: False: one call at most

    @property
    def callable(self) -> Sequence[Mapping[str, Any]]:
        """Functions that may be called."""
        functions = [tool["function"] for tool in self.tools]
        if isinstance(self.choice, dict):
            name = self.choice["function"]["name"]
            return [function for function in functions if function["name"] == name]
        return [] if self.choice == "none" else functions

    @property
    def is_forced(self) -> bool:
        """True where the answer must be a call."""
        return bool(self.tools) and (self.choice == "required" or isinstance(self.choice, dict))

    @property
    def constrained_by(self) -> str:
        """Field for which the model isn't free to call what it wants as it wants; "": it is."""
        if not self.callable:
            return ""
        if self.is_forced:
            return "tool_choice"
        if any(function.get("strict") for function in self.callable):
            return "tools"
        return "" if self.parallel else "parallel_tool_calls"


def read_tools(fields: Fields) -> ToolUse:
    """Returns the tools of a request and the choice among them. Raises FieldError."""
    tools = fields.get("tools")
    if tools is not None and (not isinstance(tools, list) or len(tools) > MOST_TOOLS):
        raise FieldError("tools", f"must be a list of up to {MOST_TOOLS} tools")
    read = tuple(_tool(f"tools[{n}]", tool) for n, tool in enumerate(tools or ()))
    use = ToolUse(
        read,
        _choice(fields.get("tool_choice"), [tool["function"]["name"] for tool in read]),
        fields.get("parallel_tool_calls") is None or fields.flag("parallel_tool_calls"),
    )
    if use.constrained_by:
        for n, tool in enumerate(read):
            schema = tool["function"].get("parameters")
            check_schema(f"tools[{n}].function.parameters", schema or {})
        check_size("tools", read)
    return use


def _choice(choice: Any, names: Sequence[str]) -> Any:
    if isinstance(choice, dict):
        return _named(choice, names)
    if choice not in _CHOICES:
        wanted = 'must be "auto", "none", "required", or an object with the name of a function'
        raise FieldError("tool_choice", wanted)
    if choice == "required" and not names:
        raise FieldError("tool_choice", 'can\'t be "required" without tools')
    return choice


def _named(choice: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if choice.get("type") != "function" or not isinstance(name, str):
        wanted = 'must be {"type": "function", "function": {"name": …}}'
        raise FieldError("tool_choice", wanted)
    if name not in names:
        raise FieldError("tool_choice.function.name", "must be the name of one of the tools")
    return choice


def _tool(place: str, tool: Any) -> Mapping[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise FieldError(f"{place}.type", 'must be "function": other tools aren\'t supported')
    function = tool.get("function")
    place = f"{place}.function"
    if not isinstance(function, dict):
        raise FieldError(place, "must be an object")
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        wanted = "must have 1 to 64 letters, digits, underscores and hyphens"
        raise FieldError(f"{place}.name", wanted)
    if not isinstance(function.get("description"), str | None):
        raise FieldError(f"{place}.description", "must be a text")
    if not isinstance(function.get("strict"), bool | None):
        raise FieldError(f"{place}.strict", "must be true or false")
    if not isinstance(function.get("parameters"), dict | None):
        raise FieldError(f"{place}.parameters", "must be a JSON schema")
    return tool
