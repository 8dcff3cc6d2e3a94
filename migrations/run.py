"""Migration of the schema, and the check that it is current."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine


def _config(engine: Engine) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["engine"] = engine
    return config


def migrate(engine: Engine) -> None:
    """Brings the schema up to date; safe to repeat, and from several processes at once."""
    command.upgrade(_config(engine), "head")


def is_current(engine: Engine) -> bool:
    """Returns True if the database has the schema that this code was written for."""
    wanted = ScriptDirectory.from_config(_config(engine)).get_current_head()
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision() == wanted
