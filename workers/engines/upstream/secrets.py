"""Secrets of upstreams: from the environment or from files, read once by the worker."""

import os
from pathlib import Path

_PREFIXES = ("env:", "file:")


def resolve(text: str, where: str) -> tuple[str, str]:
    """Returns (the text with its secret, the secret or ""); the last word may be `env:NAME` or
    `file:/path`. Raises ValueError, naming the place and never the secret."""
    before, space, word = text.rpartition(" ")
    if not word.startswith(_PREFIXES):
        return text, ""
    kind, _, name = word.partition(":")
    secret = _read(kind, name, where).strip()
    if not secret or not secret.isascii() or not secret.isprintable():
        raise ValueError(f"{where}: {word} holds no line of printable ASCII")
    return f"{before}{space}{secret}", secret


def _read(kind: str, name: str, where: str) -> str:
    try:
        return os.environ[name] if kind == "env" else Path(name).read_text()
    except KeyError:
        message = f"{where}: the environment variable {name} is not set for the worker"
        raise ValueError(message) from None
    except OSError as error:
        raise ValueError(f"{where}: {name} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: {name} is no text") from error
