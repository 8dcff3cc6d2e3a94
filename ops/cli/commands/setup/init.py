"""Command that writes a folder to begin with."""

from pathlib import Path

import click

from ops.cli.commands.common import as_json_option, show
from ops.cli.setup import dotenv

#: By name in the folder: the file to copy.
_FILES = {"models.toml": "models.toml", dotenv.NAME: "env.txt"}
_TEMPLATES = Path(dotenv.__file__).parent
_PRIVATE = 0o600  # .env may get secrets


@click.command(epilog="Example: millrace init my-models && cd my-models && millrace up")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
@as_json_option
def init(folder: Path, force: bool, as_json: bool) -> None:
    """Writes a models file with the samples, and a .env with settings, into FOLDER.

    Default: the current folder. All commands read the .env of the folder in which they run.
    """
    there = [str(folder / name) for name in _FILES if (folder / name).exists()]
    if there and not force:
        raise click.ClickException(
            f"{' and '.join(there)} {'is' if len(there) == 1 else 'are'} there; --force overwrites"
        )
    try:
        written = _write(folder)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    then = "millrace up" if folder == Path() else f"cd {folder} && millrace up"
    lines = [*(f"{path}  written" for path in written), f"start it with `{then}`"]
    show({"files": written, "next": then}, lines, as_json)


def _write(folder: Path) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, template in _FILES.items():
        (folder / name).write_text((_TEMPLATES / template).read_text())
    (folder / dotenv.NAME).chmod(_PRIVATE)
    return [str(folder / name) for name in _FILES]
