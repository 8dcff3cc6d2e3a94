"""An api of this code on a database that newer code has migrated, as in a rolling upgrade."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Engine

import migrations
from api.app import create_app
from jobs.settings import Settings, SettingsError
from migrations import schema
from migrations.run import migrate
from tests.support.servers.api_server import serving
from tests.support.stores.transactions import scalar

Upgrade = Callable[[str], None]

NEWER = """
from alembic import op

revision, down_revision, oldest_code = "{revision}", "{before}", "{oldest}"


def upgrade():
    op.execute("{statement}")
"""
EXPANDS, CONTRACTS = (f"{int(schema.HEAD) + more:04}" for more in (1, 2))


@pytest.fixture
def upgrade(database: Engine, tmp_path: Path) -> Upgrade:
    """Migrates the database to a revision of newer code: one that adds a column, or one that takes
    another away."""
    newer = tmp_path / "migrations"
    shutil.copytree(Path(migrations.__file__).parent, newer)
    for revision, before, oldest, statement in (
        (EXPANDS, schema.HEAD, schema.HEAD, "ALTER TABLE jobs ADD COLUMN later text"),
        (CONTRACTS, EXPANDS, CONTRACTS, "ALTER TABLE jobs DROP COLUMN later"),
    ):
        code = NEWER.format(revision=revision, before=before, oldest=oldest, statement=statement)
        (newer / "versions" / f"{revision}_newer.py").write_text(code)
    config = Config()
    config.set_main_option("script_location", str(newer))
    config.attributes["engine"] = database
    return lambda revision: command.upgrade(config, revision)


@pytest.fixture
def api(settings: Settings) -> Iterator[httpx.Client]:
    with (
        serving(create_app(settings)) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        yield client


def test_an_api_goes_on_after_a_migration_that_adds(
    api: httpx.Client, upgrade: Upgrade, database: Engine
) -> None:
    job = {"model": "echo", "items": ["a"]}
    assert api.get("/readyz").status_code == 200
    assert api.post("/jobs", json=job).status_code == 202
    upgrade(EXPANDS)
    assert api.get("/readyz").status_code == 200
    assert api.post("/jobs", json=job).status_code == 202
    migrate(database)  # as this code does when it starts again
    assert schema.read(database) == (EXPANDS, schema.HEAD)
    assert scalar(database, "SELECT count(*) FROM jobs") == 2


def test_an_api_is_not_ready_after_a_migration_that_takes_away_what_it_needs(
    api: httpx.Client, upgrade: Upgrade, database: Engine
) -> None:
    upgrade(CONTRACTS)
    refused = api.get("/readyz")
    assert refused.status_code == 503
    reason = refused.json()["detail"]
    assert f"revision {CONTRACTS}, which code before {CONTRACTS} can't use" in reason
    with pytest.raises(SettingsError, match="install the newer release"):
        migrate(database)
    assert schema.read(database).revision == CONTRACTS


def test_newer_code_waits_for_its_migration(
    api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "HEAD", EXPANDS)
    refused = api.get("/readyz")
    assert (refused.status_code, refused.json()["detail"]) == (
        503,
        "the database is not migrated: run `millrace migrate`",
    )


def test_each_migration_says_which_code_may_go_on() -> None:
    """From the one on that adds the place for it; no later one lets older code back in."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))
    declared = {
        each.revision: each.module.oldest_code
        for each in scripts.walk_revisions()
        if each.revision >= "0027"
    }
    oldest = [declared[revision] for revision in sorted(declared)]
    assert oldest == sorted(oldest)
    assert all(code <= revision for revision, code in declared.items())
