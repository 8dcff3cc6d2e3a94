"""Clients of one tenant."""

from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from millrace import Client
from ops.supervisor.platform import Platform
from tests.acceptance.compat.embeddings.embeddings import TEXTS, sdk
from tests.support.keys import make_key_at


@pytest.fixture(scope="module")
def key(platform: Platform) -> str:
    return make_key_at(platform.settings.database_url, "embeddings")[0]


@pytest.fixture(scope="module")
def openai_client(platform: Platform, key: str) -> Iterator[OpenAI]:
    with sdk(platform, key) as made:
        yield made


@pytest.fixture(scope="module")
def client(platform: Platform, key: str) -> Iterator[Client]:
    made = Client(platform.url, key)
    yield made
    made.close()


@pytest.fixture(scope="module")
def vectors(client: Client) -> dict[str, Any]:
    """Vectors of the texts, as POST /infer returns them."""
    return {text: client.infer("minilm", text)["output"] for text in TEXTS}
