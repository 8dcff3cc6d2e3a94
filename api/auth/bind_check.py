"""Refuses to bind to a public address without authentication."""

from sqlalchemy import Engine as Database

from jobs.settings import LOOPBACK, Settings, SettingsError
from jobs.store.tenants import api_keys


def problems(settings: Settings, database: Database) -> list[str]:
    """Returns why the api must not bind to this address; empty if it may."""
    if not requires_key(settings):
        return []
    with database.begin() as tx:
        return [] if api_keys.any_key(tx) else missing_key_problems(settings)


def requires_key(settings: Settings) -> bool:
    """Returns True if callers need an API key: beyond loopback, without an identity provider."""
    return settings.host not in LOOPBACK and not settings.oidc_issuer


def missing_key_problems(settings: Settings) -> list[str]:
    """Returns the problem that no API key exists."""
    return [
        f"MILLRACE_HOST is {settings.host}: beyond loopback the api requires credentials, and no "
        "key exists; `millrace keys create --tenant NAME --role admin` makes the first, or name "
        "an identity provider with MILLRACE_OIDC_ISSUER"
    ]


def check(settings: Settings, database: Database) -> None:
    """Raises SettingsError where the api must not bind to its address."""
    if wrong := problems(settings, database):
        raise SettingsError(wrong)
