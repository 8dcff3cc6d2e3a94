"""Command on the database: rotation of MILLRACE_SECRET_KEY."""

import sys
from collections.abc import Iterator, Sequence

import click
from sqlalchemy import Engine as Database

from jobs.errors import NotConfigured
from jobs.security import encryption
from jobs.store.tenancy import EVERYBODY, acting
from jobs.usecases.secret_key import Page, encrypt_again
from ops.cli.admin_database import admin_database, record
from ops.cli.commands.common import as_json_option, show
from ops.embedded import defaults

_NAME = "MILLRACE_SECRET_KEY"
_NAMED = 10  # tenants in a message


@click.command(epilog="Example: millrace rotate-secret")
@as_json_option
def rotate_secret(as_json: bool) -> None:
    """Encrypts stored secrets again with the first of several keys.

    First restart every process with the new key on the line before the old one in
    MILLRACE_SECRET_KEY. The command may be interrupted and repeated.
    """
    with admin_database() as database:
        secret_key = defaults.load().secret_key  # read now: the embedded database is started
        keys = encryption.keys(secret_key)
        if not keys:
            raise NotConfigured(f"{_NAME} is not set here: set the one that the processes have")
        pages = list(_pages(database, secret_key))
        late = sum(page.encrypted for page in _pages(database, secret_key))
    encrypted = sum(page.encrypted for page in pages)
    unreadable = [tenant for page in pages for tenant in page.unreadable]
    unchanged = sum(page.read for page in pages) - encrypted
    removable = 0 if late else len(keys) - 1
    result = {"encrypted": encrypted + late, "unchanged": unchanged, "removable_keys": removable}
    lines = [f"encrypted again with the first key: {encrypted + late}; unchanged: {unchanged}"]
    if removable:
        which = "the second key" if removable == 1 else f"keys 2 to {removable + 1}"
        lines.append(
            f"remove {which} from {_NAME} and restart every process: nothing stored needs it; "
            "dashboard sessions that it encrypted end then"
        )
    show({**result, "unreadable": unreadable}, lines, as_json)
    problems = list(_problems(late, unreadable))
    for problem in problems:
        click.echo(f"problem: {problem}", err=True)
    sys.exit(1 if problems else 0)


def _pages(database: Database, secret_key: str) -> Iterator[Page]:
    """Yields the result of each transaction, until every tenant was seen."""
    after = ""
    while True:
        with acting(database, EVERYBODY) as tx:
            page = encrypt_again(tx, secret_key, after)
            if page.encrypted:
                record(tx, "secret_key.rotate", _NAME, EVERYBODY, encrypted=page.encrypted)
        if not page.last_tenant:
            return
        yield page
        after = page.last_tenant


def _problems(late: int, unreadable: Sequence[str]) -> Iterator[str]:
    if late:
        yield (
            f"{late} secrets were encrypted with an older key while this command ran: restart the "
            "processes that still have that key first, then repeat it"
        )
    if unreadable:
        named = ", ".join(unreadable[:_NAMED]) + (", …" if len(unreadable) > _NAMED else "")
        yield (
            f"no key decrypts the webhook secrets of {len(unreadable)} tenants ({named}): add the "
            f"key that encrypted them behind the first one in {_NAME} and repeat the command, or "
            "have these tenants make new ones (`millrace webhook-secret --rotate`)"
        )
