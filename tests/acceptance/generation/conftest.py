"""A client of OpenAI's package."""

import openai
import pytest


@pytest.fixture
def chat(openai_client: openai.OpenAI) -> openai.OpenAI:
    return openai_client
