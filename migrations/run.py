"""Migration of the schema."""

from pathlib import Path

from sqlalchemy import Engine

from jobs.settings import SettingsError
from jobs.store import db, partitions
from migrations import schema


def migrate(engine: Engine) -> None:
    """Brings the schema up to date; safe to repeat, and from several processes at once.

    A schema of newer code stays as it is. Raises SettingsError where this code can't use it.
    """
    found = schema.read(engine)
    if found.behind:
        _upgrade(engine)
    elif found.problem:
        raise SettingsError([found.problem])
    else:
        with engine.begin() as tx:
            partitions.ensure(tx, db.now(tx))


def _upgrade(engine: Engine) -> None:
    # Not at the top: few of the commands that may migrate do, and alembic takes 0.2 s.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["engine"] = engine
    command.upgrade(config, "head")
