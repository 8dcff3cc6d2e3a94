"""Key of a home, which encrypts the secrets in its database."""

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from ops.embedded.errors import EmbeddedError

_BYTES = 32


def read(home: Path) -> str:
    """Key of the home; empty where there is none yet."""
    path = _path(home)
    try:
        return path.read_text().strip() if path.exists() else ""
    except OSError as error:
        raise _unusable(path, error) from error


def ensure(home: Path) -> None:
    """Makes a key, of mode 0600, unless there is one; atomic, also beside other processes."""
    path = _path(home)
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


def _path(home: Path) -> Path:
    return home / "secret.key"


def _unusable(path: Path, error: OSError) -> EmbeddedError:
    return EmbeddedError(
        f"{path} can't be used: {error.strerror}. Start as the user that owns it, or set "
        "MILLRACE_SECRET_KEY."
    )
