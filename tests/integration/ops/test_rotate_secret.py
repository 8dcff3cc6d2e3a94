"""`millrace rotate-secret`: the first key encrypts again, and older ones can go."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from click.testing import Result
from sqlalchemy import Engine, text

from jobs.security.encryption import DecryptionError, encrypt
from jobs.store.db import Tx
from jobs.store.tenancy import EVERYBODY, acting
from jobs.store.webhooks import secrets
from jobs.usecases import secret_key, webhook_secret
from ops.cli.commands.admin import secret_key as command
from tests.support.command_line import run_millrace
from tests.support.stores.transactions import execute

OLD, NEW, OTHER = (f"the {name} key, of 32 characters or more" for name in ("old", "new", "lost"))
BOTH = f"{NEW}\n{OLD}"


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_key, "TENANTS_AT_ONCE", 2)


def rotate(url: str, key: str = BOTH, status: int = 0) -> Result:
    env = {"MILLRACE_DATABASE_URL": url, "MILLRACE_SECRET_KEY": key}
    return run_millrace("rotate-secret", "--json", status=status, **env)


def rotated(url: str, key: str = BOTH) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(rotate(url, key).stdout)
    return found


def signing(database: Engine, key: str, tenants: Sequence[str]) -> list[list[str]]:
    with acting(database, EVERYBODY) as tx:
        return [webhook_secret.signing_secrets(tx, key, tenant) for tenant in tenants]


def test_secrets_stay_and_only_the_first_key_reads_them(
    database: Engine, database_url: str
) -> None:
    tenants = [f"tenant-{n}" for n in range(5)]
    with acting(database, EVERYBODY) as tx:  # one of them has two that sign
        webhook_secret.rotate(tx, OLD, tenants[3])
        webhook_secret.rotate(tx, OLD, tenants[3])
    before = signing(database, OLD, tenants)
    result = rotated(database_url)
    assert result == {"encrypted": 6, "unchanged": 0, "removable_keys": 1, "unreadable": []}
    assert signing(database, NEW, tenants) == before
    with pytest.raises(DecryptionError):
        signing(database, OLD, tenants)
    assert rotated(database_url)["unchanged"] == 6  # to repeat it is harmless
    with database.begin() as tx:
        query = "SELECT tenant_id, act, actor, detail::json->>'encrypted' FROM audit ORDER BY id"
        acts = [tuple(row) for row in tx.execute(text(query))]
    assert acts == [("*", "secret_key.rotate", "cli", str(n)) for n in (2, 3, 1)]


def test_a_rotation_that_breaks_off_goes_on_where_it_was(
    database: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenants = [f"tenant-{n}" for n in range(5)]
    before = signing(database, OLD, tenants)
    real, pages = secret_key.encrypt_again, []

    def twice(tx: Tx, key: str, after: str) -> secret_key.Page:
        pages.append(after)
        if len(pages) == 3:
            raise KeyboardInterrupt
        return real(tx, key, after)

    monkeypatch.setattr(command, "encrypt_again", twice)
    rotate(database_url, status=130)
    assert signing(database, BOTH, tenants) == before  # read by either key meanwhile
    monkeypatch.setattr(command, "encrypt_again", real)
    result = rotated(database_url)
    assert (result["encrypted"], result["unchanged"]) == (1, 4)
    assert signing(database, NEW, tenants) == before


def test_a_process_that_still_encrypts_with_an_older_key_keeps_that_key(
    database: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    signing(database, OLD, ["acme"])
    real = secret_key.encrypt_again

    def beside(tx: Tx, key: str, after: str) -> secret_key.Page:
        page = real(tx, key, after)
        if not page.last_tenant and "aaa" not in secrets.tenants_after(tx, "", 9):
            secrets.insert_secret(tx, "aaa", encrypt(OLD, "aaa", "whsec_x"), shown=False)
        return page

    monkeypatch.setattr(command, "encrypt_again", beside)
    done = rotate(database_url, status=1)
    assert json.loads(done.stdout)["removable_keys"] == 0
    assert "restart the processes that still have that key first" in done.stderr
    assert rotated(database_url)["removable_keys"] == 1


def test_signing_secrets_that_no_key_decrypts_are_named(
    database: Engine, database_url: str
) -> None:
    signing(database, OTHER, ["acme", "over"])
    signing(database, OLD, ["good"])
    execute(database, "UPDATE webhook_secrets SET expires_at = now() WHERE tenant_id = 'over'")
    done = rotate(database_url, status=1)
    assert json.loads(done.stdout)["unreadable"] == ["acme"]
    assert "(acme)" in done.stderr
    assert "behind the first one in MILLRACE_SECRET_KEY" in done.stderr
    with acting(database, EVERYBODY) as tx:  # a new one signs at once
        made = webhook_secret.rotate(tx, NEW, "acme")["secret"]
    assert signing(database, NEW, ["acme"]) == [[made]]
    rotated(database_url, f"{BOTH}\n{OTHER}")
    signing(database, NEW, ["acme", "good"])


def test_without_a_key_it_says_what_to_set(database_url: str) -> None:
    assert "MILLRACE_SECRET_KEY is not set here" in rotate(database_url, "", status=1).stderr
