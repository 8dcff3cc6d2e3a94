"""`millrace check`: every problem of the configuration, or the invariants of the database."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from api.auth import bind_check
from jobs import ids, settings
from jobs.blobs.store import open_store
from jobs.calls import redis as call_redis
from jobs.errors import BlobStoreUnavailable
from jobs.models import models_file
from jobs.settings import Settings, SettingsError
from jobs.store import db, invariants
from jobs.store.invariants import Invariant, Violation
from migrations.run import is_current
from ops.embedded import defaults
from ops.embedded.layout import Layout


@dataclass(frozen=True, slots=True)
class Finding:
    """Setting with its value."""

    name: str
    value: str
    help: str


def setting_values(found: Settings) -> Iterator[Finding]:
    """Yields every setting; passwords are not shown."""
    for name, field in Settings.model_fields.items():
        value = str(getattr(found, name) or "")
        if settings.is_secret(field) and value:
            value = settings.shown(value) if "://" in value else "(set)"
        yield Finding(f"MILLRACE_{name.upper()}", value, field.description or "")


_QUERY_TIMEOUT_S = 3600


def broken(found: Settings) -> Iterator[tuple[Invariant, list[Violation]]]:
    """Yields every invariant with its first violations, in one snapshot of the database."""
    engine = db.connect(found.database_url, pool_size=1, statement_timeout_s=_QUERY_TIMEOUT_S)
    try:
        with invariants.snapshot(engine) as tx:
            for invariant in invariants.INVARIANTS:
                yield invariant, invariants.violations(tx, invariant)
    finally:
        engine.dispose()


def lines(invariant: Invariant, broken: list[Violation]) -> Iterator[str]:
    """Yields a line for an invariant, and one for each violation."""
    word = "BROKEN" if broken else "holds"
    yield f"{invariant.number}  {invariant.name:20} {word:7} {invariant.holds}"
    for violation in broken:
        yield f"     {_job(violation) or 'database'}: {violation.what}"
    if len(broken) == invariants.MOST_VIOLATIONS:
        yield "     … and maybe more"


def as_json(invariant: Invariant, broken: list[Violation]) -> dict[str, Any]:
    """Object of an invariant."""
    return {
        "invariant": invariant.number,
        "name": invariant.name,
        "holds": not broken,
        "violations": [{"job": _job(found), "what": found.what} for found in broken],
    }


def _job(violation: Violation) -> str | None:
    return ids.show("job", violation.job) if violation.job else None


def problems() -> list[str]:
    """Problems of the configuration; empty: none."""
    try:
        found = settings.load()
    except SettingsError as error:
        return error.problems
    wrong: list[str] = []
    try:
        wrong += [no for model in models_file.load(found.models) for no in model.file_problems()]
    except SettingsError as error:
        wrong += error.problems
    filled = defaults.fill_in(found)
    wrong += _database(filled) if found.database_url else _embedded(filled)
    if found.redis_url:
        wrong += _redis(found)
    if found.blobs:
        wrong += _blobs(found)
    return wrong


def _database(found: Settings) -> list[str]:
    engine = db.connect(found.database_url, pool_size=1)
    try:
        if not is_current(engine):
            return ["MILLRACE_DATABASE_URL: the database is not migrated; run `millrace migrate`"]
        return bind_check.problems(found, engine)
    except SQLAlchemyError as error:
        return [f"MILLRACE_DATABASE_URL: {str(error).splitlines()[0]}"]
    finally:
        engine.dispose()


def _embedded(found: Settings) -> list[str]:
    """Problems with keys, as far as known while the database may not run."""
    if not bind_check.requires_key(found):
        return []
    engine = db.connect(found.database_url, pool_size=1)
    try:
        return bind_check.problems(found, engine)
    except SQLAlchemyError:
        return [] if Layout.of(found.home).data.exists() else bind_check.missing_key_problems(found)
    finally:
        engine.dispose()


def _blobs(found: Settings) -> list[str]:
    """Writes, reads and deletes a blob."""
    folder = f"check/{ids.new().hex}/"
    try:
        store = open_store(found.blobs, found.s3_endpoint)
        store.put(folder + "probe", b"probe")
        store.get(folder + "probe")
        store.delete_prefix(folder)
    except BlobStoreUnavailable as error:
        return [f"MILLRACE_BLOBS: {error}"]
    return []


def _redis(found: Settings) -> list[str]:
    try:
        call_redis.connect(found.redis_url).ping()
    except (RedisError, ValueError) as error:
        return [f"MILLRACE_REDIS_URL: {error}"]
    return []
