"""Real servers for tests: one PostgreSQL and one Redis a test process, a database a test; shared
platforms. A folder's conftest imports those that its tests need."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from sqlalchemy import Engine

from jobs.models.builtin_models import SAMPLES
from jobs.models.registry import Registry
from jobs.settings import Settings
from jobs.store import db
from ops.embedded.servers import EmbeddedServers
from ops.supervisor.platform import Platform
from tests.support.models import custom_models
from tests.support.pace import pace
from tests.support.platforms import (
    SHARED,
    Platforms,
    copy_database,
    database_template,
    no_durability,
)
from tests.support.stores.databases import TestDatabases
from tests.support.stores.redis_cluster import RedisCluster
from tests.support.stores.transactions import connected, patient_transactions


@pytest.fixture(scope="session")
def database_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
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
    with patient_transactions():
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
def platform(request: pytest.FixtureRequest, platforms: Platforms) -> Iterator[Platform]:
    """The platform that the module declares as PLATFORM; a shared one serves its MODELS too."""
    declared = request.module
    models, files = getattr(declared, "MODELS", ""), getattr(declared, "FILES", None)
    more = (models, files) if declared.PLATFORM in SHARED else ("", None)
    with platforms.shared(declared.PLATFORM, *more) as found:
        yield found


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
    with connected(database_url, pool_size=4) as engine:
        yield engine


@pytest.fixture
def api(database_url: str) -> Iterator[Engine]:
    """Connections of an api process: row-level security applies."""
    with connected(database_url, db.API) as engine:
        yield engine


@pytest.fixture
def keeper(database_url: str) -> Iterator[Engine]:
    """Connections of a keeper or a worker."""
    with connected(database_url, db.WORKER) as engine:
        yield engine


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
        lease_s=3 * pace(),
        secret_key="a key of the tests, 32 characters or more",
    )
