"""Connections of a platform, against those that its PostgreSQL allows."""

import logging

import pytest
from sqlalchemy import Engine, text

from ops.supervisor import connections
from ops.supervisor.database_setup import check_connections
from tests.support.platforms import Platforms, database_of, spec


def test_too_few_connections_are_warned_of(
    database: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "millrace.processes"):
        check_connections(database, 1)
        assert not caplog.text
        check_connections(database, 1000)
    assert f"may open {connections.most(1000)}" in caplog.text


@pytest.mark.nightly
def test_eight_workers_fit_into_the_embedded_server(platforms: Platforms) -> None:
    with platforms.running(spec(workers=8)) as platform, database_of(platform) as database:
        with database.connect() as tx:
            allowed = int(tx.scalars(text("SELECT current_setting('max_connections')")).one())
            used = int(tx.scalars(text("SELECT count(*) FROM pg_stat_activity")).one())
        assert used < allowed >= connections.most(8) > 200
