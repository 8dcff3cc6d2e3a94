"""Log probabilities in the form of OpenAI's completions, which is older than that of chats."""

from collections.abc import Mapping, Sequence
from typing import Any


def of_completion(tokens: Sequence[Mapping[str, Any]], offset: int) -> dict[str, Any]:
    """Returns the `logprobs` of a completion from objects of a chat's `logprobs.content`.

    offset: characters of the text before the first of these tokens.
    """
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token["token"])
    return {
        "tokens": [token["token"] for token in tokens],
        "token_logprobs": [token["logprob"] for token in tokens],
        "top_logprobs": [
            {top["token"]: top["logprob"] for top in token["top_logprobs"]} for token in tokens
        ],
        "text_offset": offsets,
    }
