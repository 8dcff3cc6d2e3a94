"""Clients of the platform that a module declares, by a key of the module's own tenant."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pytest
import redis
from sqlalchemy import Engine

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.clients import bearer, http_of
from tests.support.keys import make_key_at
from tests.support.platforms import database_of
from tests.support.servers.receiver import Receiver, receiving

if TYPE_CHECKING:
    import anthropic
    import openai

    from tests.support.stores.s3 import S3


@pytest.fixture(scope="module")
def key(platform: Platform, request: pytest.FixtureRequest) -> str:
    """Empty where everybody is let in."""
    if httpx.get(f"{platform.url}/jobs").status_code != httpx.codes.UNAUTHORIZED:
        return ""
    tenant = request.module.__name__.partition("acceptance.")[2].replace(".", "-")
    return make_key_at(platform.settings.database_url, tenant)[0]


@pytest.fixture(scope="module")
def client(platform: Platform, key: str) -> Iterator[Client]:
    made = Client(platform.url, key or None)
    yield made
    made.close()


@pytest.fixture(scope="module")
def http(platform: Platform, key: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=platform.url, headers=bearer(key)) as made:
        yield made


@pytest.fixture(scope="module")
def admin(platform: Platform) -> Iterator[httpx.Client]:
    with http_of(platform, "admins", role="admin") as made:
        yield made


@pytest.fixture(scope="module")
def openai_client(platform: Platform, key: str) -> Iterator["openai.OpenAI"]:
    from tests.support.packages import openai_with

    with openai_with(platform, key) as made:
        yield made


@pytest.fixture(scope="module")
def claude(platform: Platform, key: str) -> Iterator["anthropic.Anthropic"]:
    from tests.support.packages import anthropic_with

    with anthropic_with(platform, key) as made:
        yield made


@pytest.fixture(scope="module")
def database(platform: Platform) -> Iterator[Engine]:
    with database_of(platform) as found:
        yield found


@pytest.fixture
def store(platform: Platform) -> Iterator["redis.Redis"]:
    """The Redis of calls."""
    with redis.Redis.from_url(platform.settings.redis_url) as found:
        yield found


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture(scope="module")
def s3() -> Iterator["S3"]:
    from tests.support.stores.s3 import serving

    with serving() as server:
        yield server
