"""Migration of the schema."""

from pathlib import Path

from sqlalchemy import Engine


def migrate(engine: Engine) -> None:
    """Brings the schema up to date; safe to repeat, and from several processes at once."""
    # Not at the top: few of the commands that may migrate do, and alembic takes 0.2 s.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["engine"] = engine
    command.upgrade(config, "head")
