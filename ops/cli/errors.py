"""Reports errors that users can fix in one line."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

import click

#: Errors that say what a user can do: module and name, since loading them all takes a while.
_FOR_USERS = (
    ("jobs.errors", "MillraceError"),
    ("jobs.models.engines.extras", "MissingExtra"),
    ("jobs.settings", "SettingsError"),
    ("millrace.errors", "MillraceError"),
)
_MAKES_ONE = "`millrace keys create --tenant NAME --role admin` makes an admin's"
_HINTS = {  # by status of an answer of the api
    401: f"\nset the environment variable MILLRACE_API_KEY to a key of yours; {_MAKES_ONE}",
    403: f"\nset the environment variable MILLRACE_API_KEY to a key with this right; {_MAKES_ONE}",
}
SERVER_EXTRA = "this command needs the platform's packages: pip install 'millrace[server]'"
_SERVER = re.compile(r"""extra == ["']server["']""")  # of a requirement
INTERRUPTED = 130  # exit status after Ctrl-C, as in shells


@contextmanager
def reported() -> Iterator[None]:
    """Turns errors that users can fix into click's, which exit with a status and no trace."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except Exception as error:
        message = _message(error)
        if message is None:
            raise
        raise click.ClickException(message) from error


def _lacks_server() -> bool:
    """Returns True where a package of the extra `server` isn't installed."""
    try:
        required = metadata.requires("millrace") or []
    except metadata.PackageNotFoundError:
        return False
    names = [re.split(r"[^\w.-]", one)[0] for one in required if _SERVER.search(one)]
    return not all(map(_is_installed, names))


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _message(error: Exception) -> str | None:
    """Describes an error in a line; None where it is a fault of ours."""
    if isinstance(error, ModuleNotFoundError) and _lacks_server():
        return f"{error.name} isn't installed: {SERVER_EXTRA}"
    for module, name in _FOR_USERS:  # those that were raised have been loaded
        if module in sys.modules and isinstance(error, getattr(sys.modules[module], name)):
            break
    else:
        return None
    if getattr(error, "refused", False):
        return "no api answers there; start one with `millrace up`, or set its address with --url"
    return f"{error}{_HINTS.get(getattr(error, 'status', 0), '')}"
