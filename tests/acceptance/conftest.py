"""Clients of the platform that a module declares."""

from collections.abc import Iterator

import httpx
import pytest

from millrace import Client
from ops.supervisor.platform import Platform


@pytest.fixture(scope="module")
def client(platform: Platform) -> Iterator[Client]:
    made = Client(platform.url)
    yield made
    made.close()


@pytest.fixture(scope="module")
def http(platform: Platform) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=platform.url) as made:
        yield made
