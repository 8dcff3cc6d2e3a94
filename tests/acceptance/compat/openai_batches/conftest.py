"""Clients of one tenant."""

import httpx
import openai
import pytest


@pytest.fixture(scope="module")
def client(openai_client: openai.OpenAI) -> openai.OpenAI:
    return openai_client


@pytest.fixture(scope="module")
def native(http: httpx.Client) -> httpx.Client:
    """The same tenant at the native routes."""
    return http
