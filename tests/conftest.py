"""Real servers for the tests: one PostgreSQL and one Redis a test process, a database a test."""

import gc
import os
import re
import tempfile
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from sqlalchemy import Engine
from xdist.scheduler import LoadScopeScheduling

from jobs.models.builtin_models import SAMPLES
from jobs.models.registry import Registry
from jobs.settings import Settings
from jobs.store import db
from ops.embedded.servers import EmbeddedServers
from ops.supervisor.platform import Platform
from tests.support import fork_servers, http_client
from tests.support.models import custom_models
from tests.support.platforms import (
    Platforms,
    copy_database,
    database_template,
    no_durability,
)
from tests.support.stores.databases import TestDatabases
from tests.support.stores.redis_cluster import RedisCluster
from tests.support.wait import slowdown

# No test fetches a model, nor uses one that this user has fetched.
os.environ["PIP_NO_INDEX"] = "1"
os.environ["XDG_DATA_HOME"] = str(Path(tempfile.gettempdir()) / "millrace-tests-data")

_TIMEOUT_S = 400
_LONGEST_FIRST = ("tests/acceptance/", "tests/browser/")
_ROOT = Path(__file__).parents[1]
_NAMED = re.compile(r"^PLATFORM = (\w+)$", re.MULTILINE)

http_client.configure()
hypothesis_settings.register_profile(
    "millrace", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("millrace")


def pytest_configure() -> None:
    fork_servers.share()


class _ByPlatform(LoadScopeScheduling):
    """Sends a file's tests to one process, and with them those of files on the same platform."""

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Takes the place of `--dist loadgroup`, which has no effect in pytest 9.2: xdist 3.8 names the
    group in an attribute that is no longer read."""
    config.option.loadscopereorder = False
    return _ByPlatform(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects tests without looking for garbage among their modules, and leaves these out of all
    later searches: a million objects, which stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Orders what takes long first, what shares a platform together, and gives a busy machine
    more time."""
    times = slowdown()
    first: dict[str, int] = {}
    for item in items:
        mark = item.get_closest_marker("timeout")
        limit_s = mark.args[0] if mark else _TIMEOUT_S
        item.add_marker(pytest.mark.timeout(limit_s * times), append=False)
        first.setdefault(_group_of(item), len(first))
    items.sort(key=lambda item: (_rank(item), first[_group_of(item)]))


def _group_of(item: pytest.Item) -> str:
    return _group(item.nodeid.partition("::")[0])


@cache
def _group(path: str) -> str:
    """The platform that a test file names, or the file."""
    declared = _NAMED.search((_ROOT / path).read_text())
    return declared[1] if declared else path


def _rank(item: pytest.Item) -> int:
    starts = (n for n, path in enumerate(_LONGEST_FIRST) if item.nodeid.startswith(path))
    return next(starts, len(_LONGEST_FIRST))


@pytest.fixture(scope="session")
def database_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A home with a database folder to copy."""
    base = tmp_path_factory.getbasetemp()
    return database_template((base if worker_id == "master" else base.parent) / "template")


@pytest.fixture(scope="session")
def servers(
    tmp_path_factory: pytest.TempPathFactory, database_folder: Path
) -> Iterator[EmbeddedServers]:
    home = tmp_path_factory.mktemp("home")
    copy_database(database_folder, home)
    running = EmbeddedServers(home)
    with no_durability(autovacuum="off"):
        running.start()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def platforms(
    tmp_path_factory: pytest.TempPathFactory, database_folder: Path
) -> Iterator[Platforms]:
    """Starts platforms, shared by what needs the same."""
    with no_durability():
        made = Platforms(tmp_path_factory.mktemp, database_folder)
        yield made
        made.close()


@pytest.fixture(scope="module")
def platform(request: pytest.FixtureRequest, platforms: Platforms) -> Platform:
    """The platform that the module declares as PLATFORM."""
    return platforms.shared(request.module.PLATFORM)


@pytest.fixture(scope="session")
def migrated(servers: EmbeddedServers) -> str:
    """The URL of a database with the schema, to copy for each test."""
    databases = TestDatabases(servers.postgres.url, "millrace")
    return databases.url(databases.take())


@pytest.fixture(scope="session")
def databases(servers: EmbeddedServers, migrated: str) -> TestDatabases:
    return TestDatabases(servers.postgres.url, migrated.split("?")[0].rsplit("/", 1)[1])


@pytest.fixture
def database_url(databases: TestDatabases) -> Iterator[str]:
    name = databases.take()
    yield databases.url(name)
    databases.give_back(name)


@pytest.fixture(scope="module")
def module_database_url(servers: EmbeddedServers) -> str:
    """An empty one, for a platform that lives as long as its module."""
    databases = TestDatabases(servers.postgres.url, "template1")
    return databases.url(databases.take())


@pytest.fixture
def database(database_url: str) -> Iterator[Engine]:
    # On a busy machine the whole process may stand still in a transaction for seconds.
    engine = db.connect(database_url, pool_size=4, idle_s=60)
    yield engine
    engine.dispose()


@pytest.fixture
def redis_client(servers: EmbeddedServers) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(servers.redis.url) as client:
        client.flushall()
        yield client


@pytest.fixture(scope="session")
def redis_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """A Redis Cluster of three nodes, with whatever the tests before left there."""
    with RedisCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def redis_cluster(redis_nodes: RedisCluster) -> RedisCluster:
    """The same, empty."""
    redis_nodes.flush()
    return redis_nodes


@pytest.fixture(scope="session")
def own_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models file of models that people bring, one of each engine and task."""
    return custom_models.save(tmp_path_factory.mktemp("own"))


@pytest.fixture
def models() -> Registry:
    return SAMPLES


@pytest.fixture
def settings(
    database_url: str, servers: EmbeddedServers, redis_client: "redis.Redis", tmp_path: Path
) -> Settings:
    return Settings(
        home=tmp_path,
        database_url=database_url,
        redis_url=servers.redis.url,
        lease_s=3,
        secret_key="a key of the tests, 32 characters or more",
    )
