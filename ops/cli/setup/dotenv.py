"""Settings in the file `.env` of the current folder."""

import os
import re
from collections.abc import Iterator, MutableMapping
from pathlib import Path

import click

NAME = ".env"
_LINE = re.compile(r"(?:export\s+)?(MILLRACE_[A-Z0-9_]+)\s*=\s*(.*)")


def load(folder: Path, environ: MutableMapping[str, str]) -> None:
    """Adds the MILLRACE_ variables of a folder's `.env` that the environment doesn't have.

    Other users' files are left out, with a warning: an address there would get our key.
    """
    file = folder / NAME
    try:
        text, owner = file.read_text(), file.stat().st_uid
    except (OSError, UnicodeDecodeError):
        return
    if owner not in (0, os.geteuid()):
        click.echo(f"{file} is not read: it belongs to another user", err=True)
        return
    for name, value in _variables(text):
        environ.setdefault(name, value)


def _variables(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if found := _LINE.fullmatch(line.strip()):
            yield found[1], _value(found[2])


def _value(text: str) -> str:
    """Returns a value as shells read it: quoted, or up to a comment."""
    if text[:1] in ("'", '"') and text[0] in text[1:]:
        return text[1 : text.index(text[0], 1)]
    return re.split(r"\s+#", text)[0] if not text.startswith("#") else ""
