"""Texts of a number of tokens, for the benchmark of a GPU."""

import pytest

from jobs.models.inputs.input_size import minilm_tokens
from ops.bench.gpu import texts


@pytest.mark.parametrize("tokens", [15, 115])
def test_each_text_has_that_many_tokens(tokens: int) -> None:
    found = texts.of_tokens(tokens, 500)
    assert len(set(found)) == len(found) == 500
    assert {minilm_tokens(text, {}, {}) for text in found} == {tokens}
