"""A process follows the registry: at once, over lost connections, and without a database."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from queue import Queue

import pytest
from sqlalchemy import Engine

from jobs.models.builtin_models import SAMPLES
from jobs.models.registered import Registered, union
from jobs.store import db
from jobs.store.registry import follower, snapshot
from jobs.store.registry.follower import RegistryFollower
from jobs.usecases.registry.registrar import Registrar
from jobs.usecases.submit import Order, submit
from tests.integration.jobs.store.registry.test_registrar import push, record
from tests.support.stores.store import claim, settle
from tests.support.stores.transactions import execute, transact
from tests.support.wait import PATIENCE_S


@contextmanager
def following(url: str, role: str) -> Iterator["Queue[Registered]"]:
    engine, found = db.connect(url, pool_size=1, role=role), Queue[Registered]()
    follows = RegistryFollower(engine, url, found.put)
    follows.start()
    yield found
    follows.stop()
    engine.dispose()


def keys(found: "Queue[Registered]") -> list[str]:
    return [one.key for one in found.get(timeout=PATIENCE_S).versions]


@pytest.mark.parametrize("role", [db.API, db.WORKER])
def test_the_first_look_is_over_when_it_has_started_and_a_change_comes_by_notification(
    database: Engine, database_url: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "LOOK_S", 3600)
    push(database, "2")
    with following(database_url, role) as found:
        assert keys(found) == ["echo@2"]
        push(database, "3")
        assert keys(found) == ["echo@2", "echo@3"]


def test_a_connection_that_broke_is_made_again(
    database: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "LOOK_S", 3600)
    with following(database_url, db.API) as found:
        assert keys(found) == []
        execute(database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                     "WHERE query = 'LISTEN millrace_models'")  # fmt: skip
        assert keys(found) == []  # notifications may have been missed
        push(database, "2")
        while keys(found) != ["echo@2"]:  # it may have looked twice while the connection broke
            pass


def test_without_a_database_it_starts_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    with following("postgresql+psycopg://nobody@127.0.0.1:1/none", db.API) as found:
        assert found.empty()
    assert "can't read the registry" in caplog.text


def test_a_retired_version_is_run_until_its_jobs_have_ended(database: Engine) -> None:
    push(database, "2")
    models = transact(database, snapshot.read)
    served = union(SAMPLES, models)
    submit(database, served, "acme", Order("echo@2"), array=["a"])
    with database.begin() as tx:
        Registrar(tx, SAMPLES, "cli", partial(record, tx)).retire("echo", "2")
    assert transact(database, snapshot.read) == Registered()
    held = transact(database, snapshot.read_with_unfinished)
    assert [one.key for one in held.unfinished] == ["echo@2"]
    settle(database, claim(database, model=served.resolve("echo@2")))
    assert transact(database, snapshot.read_with_unfinished) == Registered()
