"""Clients of an admin."""

from collections.abc import Iterator

import httpx
import pytest

from ops.supervisor.platform import Platform
from tests.acceptance.compat.oip.oip import Triton
from tests.support.clients import bearer
from tests.support.keys import make_key_at
from tests.support.wait import eventually


@pytest.fixture(scope="module")
def headers(platform: Platform) -> dict[str, str]:
    """Headers of an admin: since a key was made, nobody comes in without one."""
    key, _ = make_key_at(platform.settings.database_url, "oip", role="admin")
    return bearer(key)


@pytest.fixture(scope="module")
def http(platform: Platform, headers: dict[str, str]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=platform.url, headers=headers) as made:
        eventually(lambda: made.get("/keys").status_code == 200)
        yield made


@pytest.fixture(scope="module")
def triton(platform: Platform, headers: dict[str, str], http: httpx.Client) -> Iterator[Triton]:
    with Triton(platform, headers) as made:
        yield made
