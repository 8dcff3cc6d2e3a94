"""A client of one tenant."""

import openai
import pytest


@pytest.fixture(scope="module")
def client(openai_client: openai.OpenAI) -> openai.OpenAI:
    return openai_client
