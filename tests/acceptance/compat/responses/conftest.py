"""A client of one tenant."""

from collections.abc import Iterator

import openai
import pytest

from ops.supervisor.platform import Platform
from tests.support.keys import make_key_at


@pytest.fixture(scope="module")
def key(platform: Platform) -> str:
    return make_key_at(platform.settings.database_url, "responses")[0]


@pytest.fixture(scope="module")
def client(platform: Platform, key: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{platform.url}/v1", api_key=key, max_retries=0) as made:
        yield made
