"""A whole platform, started as `millrace up` starts it."""

from collections.abc import Iterator

import httpx
import pytest

from ops.client.client import Client
from ops.supervisor.platform import Platform, running


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("platform")
    with running(home, max_json_mb=1, lease_s=3.0, webhook_allow="127.0.0.1") as started:
        yield started


@pytest.fixture(scope="module")
def client(platform: Platform) -> Iterator[Client]:
    made = Client(platform.url)
    yield made
    made.close()


@pytest.fixture(scope="module")
def http(platform: Platform) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=platform.url, timeout=30) as made:
        yield made
