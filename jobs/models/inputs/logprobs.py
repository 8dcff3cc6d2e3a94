"""Log probabilities in the form of OpenAI's completions, which is older than that of chats: names
of tokens, which are their texts or, of parts of characters, `bytes:\\xc3\\xa4`."""

from collections.abc import Mapping, Sequence
from typing import Any


def of_completion(tokens: Sequence[Mapping[str, Any]], offset: int) -> dict[str, Any]:
    """Returns the `logprobs` of a completion from objects of a chat's `logprobs.content`.

    offset: characters of the text before the first of these tokens. The first token of a prompt
    has none: null.
    """
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token["token"])
    return {
        "tokens": [_name(token) for token in tokens],
        "token_logprobs": [token["logprob"] for token in tokens],
        "top_logprobs": [None if token["logprob"] is None else _likely(token) for token in tokens],
        "text_offset": offsets,
    }


def _likely(token: Mapping[str, Any]) -> dict[str, float]:
    """Returns the likeliest tokens and the chosen one by name, each once: no two have one name."""
    found: dict[str, float] = {}
    for one in (*(token.get("top_logprobs") or ()), token):
        name, spelled = _name(one), _spelled(_bytes(one))
        if one is token and one["logprob"] in (found.get(name), found.get(spelled)):
            break
        if name in found:  # a byte that is a whole character, beside that character
            name = spelled
        while name in found:  # of a server that tells no bytes, or of tokens that have none
            name += "'"
        found[name] = one["logprob"]
    return found


def _name(token: Mapping[str, Any]) -> str:
    raw = _bytes(token)
    try:
        return raw.decode().replace("\0", "\ufffd")  # PostgreSQL can't store NUL
    except UnicodeDecodeError:
        return _spelled(raw)


def _bytes(token: Mapping[str, Any]) -> bytes:
    """Returns the bytes of a token: of its text, where a server doesn't tell them."""
    raw = token.get("bytes")
    return str(token["token"]).encode() if raw is None else bytes(raw)


def _spelled(raw: bytes) -> str:
    return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
