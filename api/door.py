"""Whether the door may be opened: beyond loopback, nobody is let in without a credential."""

from sqlalchemy import Engine as Database

from jobs.settings import LOOPBACK, Settings, SettingsError
from jobs.store import keys


def problems(settings: Settings, database: Database) -> list[str]:
    """Why the api can't listen on this address: nobody could use it."""
    if settings.host in LOOPBACK or settings.oidc_issuer:
        return []
    with database.begin() as tx:
        if keys.any_key(tx):
            return []
    return [
        f"MILLRACE_HOST is {settings.host}: beyond loopback the api wants credentials, and no key "
        "was made yet; `millrace keys create --tenant NAME --role admin` makes the first, or name "
        "an identity provider with MILLRACE_OIDC_ISSUER"
    ]


def check(settings: Settings, database: Database) -> None:
    """Raises SettingsError."""
    if wrong := problems(settings, database):
        raise SettingsError(wrong)
