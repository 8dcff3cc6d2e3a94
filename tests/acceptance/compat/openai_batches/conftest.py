"""Clients of one tenant."""

from collections.abc import Iterator

import httpx
import openai
import pytest

from ops.supervisor.platform import Platform
from tests.acceptance.compat.openai_batches.batches import client_of, native_of


@pytest.fixture(scope="module")
def client(platform: Platform) -> Iterator[openai.OpenAI]:
    with client_of(platform, "batches") as made:
        yield made


@pytest.fixture(scope="module")
def native(client: openai.OpenAI, platform: Platform) -> Iterator[httpx.Client]:
    with native_of(platform, client) as made:
        yield made
