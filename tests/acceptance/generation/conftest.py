"""A client of OpenAI's package."""

import pytest
from openai import OpenAI


@pytest.fixture
def chat(openai_client: OpenAI) -> OpenAI:
    return openai_client
