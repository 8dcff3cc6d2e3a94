"""Bodies of /v1/embeddings, as they are read."""

import pytest

from api.compat.openai.embedding_schemas import read_embeddings
from jobs.errors import Invalid

ASKED = {"model": "m", "input": "x"}


def test_two_names_of_a_parameter_have_one_value() -> None:
    with pytest.raises(Invalid, match="use_activation and normalize are the same") as caught:
        read_embeddings({**ASKED, "use_activation": True, "normalize": False})
    assert caught.value.faults[0].loc == ("use_activation",)
    for normalize in (None, False):
        body = read_embeddings({**ASKED, "use_activation": False, "normalize": normalize})
        assert (body.use_activation, body.normalize) == (False, normalize)
