"""`millrace check`: the configuration and what it points to; every problem at once."""

from collections.abc import Iterator
from dataclasses import dataclass, fields

from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from jobs import registry, settings
from jobs.calls import redis as call_redis
from jobs.settings import Settings, SettingsError
from jobs.store import db
from migrations.run import is_current
from ops import configure


@dataclass(frozen=True, slots=True)
class Finding:
    """name, value and help of a setting."""

    name: str
    value: str
    help: str


def explain(found: Settings) -> Iterator[Finding]:
    """Every setting, with its value and what it is for. Passwords in URLs are not shown."""
    for f in fields(Settings):
        value = str(getattr(found, f.name) or "")
        if f.metadata["secret"] and value:
            value = "(set)"
        if "@" in value and "://" in value:
            scheme, _, rest = value.partition("://")
            user, _, host = rest.rpartition("@")
            value = f"{scheme}://{user.partition(':')[0]}@{host}"
        yield Finding(f"MILLRACE_{f.name.upper()}", value, f.metadata["help"])


def problems() -> list[str]:
    """Everything that is wrong; empty: all is well."""
    try:
        found = settings.load()
    except SettingsError as error:
        return error.problems
    wrong: list[str] = []
    try:
        registry.load(found.models)
    except SettingsError as error:
        wrong += error.problems
    if found.database_url:
        wrong += _database(configure.fill_in(found))
    if found.redis_url:
        wrong += _redis(found)
    return wrong


def _database(found: Settings) -> list[str]:
    engine = db.connect(found.database_url, pool_size=1)
    try:
        if not is_current(engine):
            return ["MILLRACE_DATABASE_URL: the database is not migrated; run `millrace migrate`"]
    except SQLAlchemyError as error:
        return [f"MILLRACE_DATABASE_URL: {str(error).splitlines()[0]}"]
    finally:
        engine.dispose()
    return []


def _redis(found: Settings) -> list[str]:
    try:
        call_redis.connect(found.redis_url).ping()
    except (RedisError, ValueError) as error:
        return [f"MILLRACE_REDIS_URL: {error}"]
    return []
