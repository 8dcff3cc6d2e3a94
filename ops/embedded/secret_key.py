"""Key of a home, which encrypts the secrets in its database; several, one a line, in a rotation."""

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from jobs.security import encryption
from ops.embedded.errors import EmbeddedError

_BYTES = 32


def read(home: Path) -> str:
    """Keys of the home, the first on the first line; empty where there is none yet."""
    path = file_of(home)
    try:
        text = path.read_text().strip() if path.exists() else ""
    except OSError as error:
        raise _unusable(path, error) from error
    if text and not encryption.are_long(text):
        raise EmbeddedError(
            f"{path} has a key of fewer than {encryption.MIN_KEY} characters: write one key a "
            "line, the newest first; `openssl rand -base64 32` makes one"
        )
    return text


def ensure(home: Path) -> None:
    """Makes a key, of mode 0600, unless there is one; atomic, also beside other processes."""
    path = file_of(home)
    if path.exists():
        return
    try:
        home.mkdir(mode=0o711, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=home, prefix=f"{path.name}.") as draft:
            draft.write(secrets.token_urlsafe(_BYTES) + "\n")
            draft.flush()
            os.fsync(draft.fileno())
            with suppress(FileExistsError):
                os.link(draft.name, path)
    except OSError as error:
        raise _unusable(path, error) from error


def file_of(home: Path) -> Path:
    """Returns the file of a home's keys."""
    return home / "secret.key"


def _unusable(path: Path, error: OSError) -> EmbeddedError:
    return EmbeddedError(
        f"{path} can't be used: {error.strerror}. Start as the user that owns it, or set "
        "MILLRACE_SECRET_KEY."
    )
