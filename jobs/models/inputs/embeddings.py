"""Inputs of embedding models: a text, its token ids, or a list of either.

Each input of a list is embedded by itself; the output is the list of their vectors.
"""

from collections.abc import Mapping
from typing import Any

MOST_INPUTS = 2048  # of a list
MOST_TOKEN_IDS = 8192  # of one text, before the model cuts it
FOREIGN_TOKENS = (
    "the input is token ids, and clients send those of OpenAI's tokenizer, which mean other words "
    "here: send texts (LangChain's OpenAIEmbeddings: check_embedding_ctx_length=False), or declare "
    "accept_token_ids = true in the model's entry of the models file"
)

_PARAMS = {"truncate_prompt_tokens": "truncate", "use_activation": "normalize"}
"""Parameters of ours that vLLM's fields stand for."""

_TOO_LONG = (  # as OpenAI says it
    "{has} token ids: this model's maximum context length is {most} tokens, however you requested "
    "{has} tokens ({has} in your prompt; 0 for the completion). Please reduce your prompt."
)


def param_of(field: str, value: Any, params: Mapping[str, Any] | None) -> tuple[str, Any]:
    """Returns the parameter that a field of a request stands for, and its value, unchecked: -1
    tokens are as many as the model takes.

    params: that the model takes; None: any, as those of a server, which knows the field by its own
    name.
    """
    if params is None or field not in _PARAMS:
        return field, value
    name = _PARAMS[field]
    known = params.get(name)
    most = known.span[-1] if known and known.span else value
    return name, most if value == -1 else value


def contradiction(fields: Mapping[str, Any]) -> tuple[str, str] | None:
    """Returns a field of a request, and why it can't be beside another one that stands for the same
    parameter with another value; None where there is none."""
    for field, name in _PARAMS.items():
        one, other = fields.get(field), fields.get(name)
        if one is not None and other is not None and one != other:
            return field, f"{field} and {name} are the same parameter: give them one value, or one"
    return None


def is_token_ids(value: Any) -> bool:
    """Returns True for the token ids of one text, which are no list of inputs."""
    return isinstance(value, list) and len(value) > 0 and not isinstance(value[0], str | list)


def split_inputs(value: Any) -> list[Any] | None:
    """Returns the inputs of a list; None where it is no list of inputs."""
    return value if isinstance(value, list) and not is_token_ids(value) else None


def refuse(value: list[Any], vocabulary: int) -> tuple[str, str] | None:
    """Returns (code, message) where a list is no valid input.

    vocabulary: token ids are below it; 0: texts only.
    """
    inputs = split_inputs(value)
    if inputs is None:
        return _refuse_token_ids(value, vocabulary)
    if not inputs:
        return "empty", "the list of inputs is empty"
    if len(inputs) > MOST_INPUTS:
        return "too_many", f"the list has {len(inputs)} inputs; it may have {MOST_INPUTS}"
    for n, one in enumerate(inputs):
        if not isinstance(one, str) and (no := _refuse_token_ids(one, vocabulary)):
            return no[0], f"input {n} of the list: {no[1]}"
    return None


def refuse_from_openai(value: Any, *, accepts_token_ids: bool) -> tuple[str, str] | None:
    """Returns (code, message) where a valid input is refused in OpenAI's API: an empty text, as
    there, and token ids, unless the model's entry says that it accepts them."""
    inputs = split_inputs(value)
    for n, one in enumerate([value] if inputs is None else inputs):
        if one == "":
            which = "the input" if inputs is None else f"input {n} of the list"
            return "empty", f"{which} is an empty string; a text has at least one character"
        if not accepts_token_ids and not isinstance(one, str):
            return "type", FOREIGN_TOKENS
    return None


def _refuse_token_ids(value: Any, vocabulary: int) -> tuple[str, str] | None:
    if not vocabulary:
        return "type", "it must be a string: this model takes no token ids"
    if not is_token_ids(value):
        return "type", "it must be a string, or a list of token ids that is not empty"
    if len(value) > MOST_TOKEN_IDS:
        return "too_long", _TOO_LONG.format(most=MOST_TOKEN_IDS, has=len(value))
    if set(map(type, value)) == {int} and min(value) >= 0 and max(value) < vocabulary:
        return None  # by far the most
    for place, id in enumerate(value):
        if type(id) is not int:  # true and false are no numbers
            return "type", f"token id {place} is not a whole number"
        if not 0 <= id < vocabulary:
            return "range", f"token id {place} is {id}; they are 0 to {vocabulary - 1}"
    return None
