"""Commands that back up the embedded database, and restore it."""

from pathlib import Path

import click

from jobs import settings
from jobs.settings import SettingsError
from ops.backup import folder
from ops.cli.admin_database import admin_database
from ops.cli.commands.common import as_json_option, show
from ops.embedded import defaults

_Folder = click.Path(file_okay=False, path_type=Path)


@click.command(epilog="Example: millrace backup /backups/monday")
@click.argument("target", metavar="DIR", type=_Folder)
@as_json_option
def backup(target: Path, as_json: bool) -> None:
    """Copies the embedded database, its blobs and keys into DIR, a new folder, while jobs run."""
    _need_embedded()
    with admin_database() as database:
        folder.backup(defaults.load(), database, target.resolve())
    show({"backup": str(target)}, f"{target} holds the backup", as_json)


@click.command(epilog="Example: millrace restore /backups/monday")
@click.argument("source", metavar="DIR", type=_Folder)
@as_json_option
def restore(source: Path, as_json: bool) -> None:
    """Brings the backup in DIR into MILLRACE_HOME, which must have no database yet."""
    _need_embedded()
    configured = defaults.load()
    folder.restore(configured, source.resolve())
    said = f"{configured.home} has the database of {source}; start it with `millrace up`"
    show({"home": str(configured.home)}, said, as_json)


def _need_embedded() -> None:
    if settings.load().database_url:
        raise SettingsError(
            ["MILLRACE_DATABASE_URL names a server of your own: see how-to/operations/backup.md"]
        )
