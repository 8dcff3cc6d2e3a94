"""OpenAI's client, of the module's own tenant."""

import pytest
from openai import OpenAI


@pytest.fixture(scope="module")
def client(openai_client: OpenAI) -> OpenAI:
    return openai_client
