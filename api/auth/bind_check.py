"""Whether the door may be opened: beyond loopback, nobody is let in without a credential."""

from sqlalchemy import Engine as Database

from jobs.settings import LOOPBACK, Settings, SettingsError
from jobs.store.tenants import api_keys


def problems(settings: Settings, database: Database) -> list[str]:
    """Why the api can't listen on this address: nobody could use it."""
    if not wants_keys(settings):
        return []
    with database.begin() as tx:
        return [] if api_keys.any_key(tx) else no_key(settings)


def wants_keys(settings: Settings) -> bool:
    return settings.host not in LOOPBACK and not settings.oidc_issuer


def no_key(settings: Settings) -> list[str]:
    """What there is to say where none was made."""
    return [
        f"MILLRACE_HOST is {settings.host}: beyond loopback the api wants credentials, and no key "
        "was made yet; `millrace keys create --tenant NAME --role admin` makes the first, or name "
        "an identity provider with MILLRACE_OIDC_ISSUER"
    ]


def check(settings: Settings, database: Database) -> None:
    """Raises SettingsError."""
    if wrong := problems(settings, database):
        raise SettingsError(wrong)
