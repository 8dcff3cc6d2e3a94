"""Vectors that the tests of embeddings compare with."""

from typing import Any

import pytest

from millrace import Client
from tests.acceptance.compat.embeddings.embeddings import TEXTS


@pytest.fixture(scope="module")
def vectors(client: Client) -> dict[str, Any]:
    """Vectors of the texts, as POST /infer returns them."""
    return {text: client.infer("minilm", text)["output"] for text in TEXTS}
