"""Backup of an embedded database with its blobs and key, as a folder.

    postgres/   data folder, as pg_basebackup copies it
    blobs/      payloads and files, where they lie in a folder
    secret.key  keys that the database's secrets are encrypted with

It is consistent while jobs run. pg_basebackup copies one state of the database, that of its end. A
blob is durable before a row refers to it and is never changed, and nothing removes blobs from
before that copy until they are copied (jobs/store/backup/blob_lock.py): every row has its blob.
Blobs that came later are without a row, and do no harm.
"""

import os
import shutil
import subprocess
from pathlib import Path

from sqlalchemy import Engine as Database

from jobs.blobs import store
from jobs.settings import Settings
from jobs.store.backup import blob_lock
from ops.embedded import secret_key
from ops.embedded.account import account_for
from ops.embedded.errors import EmbeddedError
from ops.embedded.layout import PORT, USER, Layout
from ops.embedded.lock import HomeLock
from ops.embedded.postgres import EmbeddedPostgres

_DATABASE, _BLOBS = "postgres", "blobs"
_MOST_ERROR = 500  # characters


def backup(settings: Settings, database: Database, target: Path) -> None:
    """Writes a backup of a home whose servers run; it is there whole, or not at all. settings: with
    the embedded addresses filled in. Raises EmbeddedError, OSError."""
    if target.exists():
        raise EmbeddedError(f"{target} is there already: name a new folder")
    layout, new = Layout.of(settings.home), target.with_name(f".{target.name}.new")
    shutil.rmtree(new, ignore_errors=True)  # of one that was killed
    new.mkdir(mode=0o700, parents=True)
    try:
        with blob_lock.kept(database):
            _copy_database(layout, new / _DATABASE)
            if (blobs := _blobs(settings)) and blobs.exists():
                shutil.copytree(blobs, new / _BLOBS, ignore=_unfinished, copy_function=_copy)
        if (key := secret_key.file_of(layout.home)).exists():
            shutil.copy2(key, new)
        os.sync()
        new.rename(target)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def restore(settings: Settings, source: Path) -> None:
    """Brings a backup into a home without a database. Raises EmbeddedError, OSError."""
    layout = Layout.of(settings.home)
    if not (source / _DATABASE / "backup_label").exists():
        raise EmbeddedError(f"{source} holds no backup")
    lock = HomeLock(layout.home)
    lock.acquire()
    try:
        if layout.data.exists():
            raise EmbeddedError(f"{layout.data} is there already: restore into an empty home")
        if (key := secret_key.file_of(source)).exists():
            shutil.copy2(key, layout.home)
        if (source / _BLOBS).exists():
            blobs = _blobs(settings) or layout.home / _BLOBS
            shutil.copytree(source / _BLOBS, blobs, dirs_exist_ok=True)
        new = layout.data.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(source / _DATABASE, new, symlinks=True)
        _give(new, layout)
        os.sync()
        new.rename(layout.data)  # last: with it the home has a database
    finally:
        lock.release()


def _copy_database(layout: Layout, target: Path) -> None:
    program = EmbeddedPostgres(layout.home).binary().with_name("pg_basebackup")
    place = ["-h", str(layout.run), "-p", str(PORT), "-U", USER]
    command = [str(program), *place, "-D", str(target), "-X", "stream", "-c", "fast"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise EmbeddedError(f"pg_basebackup failed: {done.stderr.strip()[-_MOST_ERROR:]}")


def _blobs(settings: Settings) -> Path | None:
    """Returns the folder of the blobs; None: they lie in S3, or nowhere."""
    found = store.parse(settings.files)
    return found if isinstance(found, Path) else None


def _unfinished(_: str, names: list[str]) -> list[str]:
    """Returns the files that are still being written; their names are other ones then."""
    return [name for name in names if name.startswith(".") and name != ".millrace-blobs"]


def _copy(source: str, target: str) -> None:
    try:
        shutil.copy2(source, target)
    except FileNotFoundError:  # a file that its tenant has deleted
        Path(target).unlink(missing_ok=True)


def _give(folder: Path, layout: Layout) -> None:
    """Gives a data folder to the user that PostgreSQL runs as."""
    account = account_for(layout.data)
    for base, _, names in os.walk(folder):
        for path in (base, *(os.path.join(base, name) for name in names)):
            os.chown(path, account.uid, account.gid, follow_symlinks=False)
    folder.chmod(0o700)
