"""Bodies of requests for tokens, and for the text of tokens."""

import pytest

from api.compat.vllm.token_schemas import MOST_DETOKENIZED
from api.compat.vllm.tokens import read_detokenize, read_tokenize
from jobs.errors import Invalid
from jobs.models.inputs.generation import parse


def test_the_tokens_of_a_conversation_may_depend_on_an_effort() -> None:
    said = {"messages": [{"role": "user", "content": "hi"}], "reasoning_effort": "low"}
    read = read_tokenize({"model": "m", **said})
    assert parse(read.input).rendering.effort == "low"


def test_the_ids_of_a_request_are_bounded() -> None:
    read_detokenize({"model": "m", "tokens": [1] * MOST_DETOKENIZED})
    with pytest.raises(Invalid, match="tokens must be a list of at most 1,000,000 token ids"):
        read_detokenize({"model": "m", "tokens": [1] * (MOST_DETOKENIZED + 1)})
