"""`millrace check`: every problem of the configuration, or the invariants of the database."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from api.auth import bind_check
from jobs import ids, settings
from jobs.artifacts import trust
from jobs.blobs.store import open_store
from jobs.calls import redis as call_redis
from jobs.errors import BlobStoreUnavailable
from jobs.models import models_file
from jobs.processes import hidden_modules
from jobs.settings import Settings, SettingsError
from jobs.store import db
from jobs.store.monitoring import invariants
from jobs.store.monitoring.invariants import Invariant, Violation
from migrations import schema
from ops.embedded import defaults
from ops.embedded.layout import Layout
from workers.scaler import workloads


@dataclass(frozen=True, slots=True)
class SettingValue:
    """Setting of the configuration."""

    name: str  #: environment variable
    value: str  #: as text; empty: not set
    help: str


def setting_values(configured: Settings) -> Iterator[SettingValue]:
    """Yields every setting; passwords are not shown."""
    for name, field in Settings.model_fields.items():
        value = str(getattr(configured, name) or "")
        if settings.is_secret(field) and value:
            value = settings.redacted(value) if "://" in value else "(set)"
        yield SettingValue(f"MILLRACE_{name.upper()}", value, field.description or "")


_QUERY_TIMEOUT_S = 3600


def violations(configured: Settings) -> Iterator[tuple[Invariant, list[Violation]]]:
    """Yields every invariant with its first violations, in one snapshot of the database."""
    engine = db.connect(configured.database_url, pool_size=1, statement_timeout_s=_QUERY_TIMEOUT_S)
    try:
        with invariants.snapshot(engine) as tx:
            for invariant in invariants.INVARIANTS:
                yield invariant, invariants.violations(tx, invariant)
    finally:
        engine.dispose()


def lines(invariant: Invariant, violations: list[Violation]) -> Iterator[str]:
    """Yields a line for an invariant, and one for each violation."""
    word = "BROKEN" if violations else "holds"
    yield f"{invariant.number}  {invariant.name:20} {word:7} {invariant.holds}"
    for violation in violations:
        yield f"     {_job(violation) or 'database'}: {violation.what}"
    if len(violations) == invariants.MOST_VIOLATIONS:
        yield "     … and maybe more"


def as_json(invariant: Invariant, violations: list[Violation]) -> dict[str, Any]:
    """Object of an invariant."""
    return {
        "invariant": invariant.number,
        "name": invariant.name,
        "holds": not violations,
        "violations": [{"job": _job(each), "what": each.what} for each in violations],
    }


def _job(violation: Violation) -> str | None:
    return ids.show("job", violation.job) if violation.job else None


def problems() -> list[str]:
    """Problems of the configuration; empty: none."""
    try:
        configured = settings.load()
    except SettingsError as error:
        return error.problems
    problems = [*_models(configured), *_trust(configured), *_workloads(configured)]
    problems += _database(configured)
    if configured.redis_url:
        problems += _redis(configured.redis_url)
    if configured.blobs:
        problems += _blobs(configured)
    return problems


def _models(configured: Settings) -> list[str]:
    try:
        models = models_file.load(configured.models)
    except SettingsError as error:
        return error.problems
    found = [problem for model in models for problem in model.file_problems()]
    folder = configured.models.parent if configured.models else None
    for model in models:
        found += [f"{model.key}: {no}" for no in hidden_modules.problems(model.options, folder)]
    return found


def _trust(configured: Settings) -> list[str]:
    try:
        trust.read(configured.trust)
    except SettingsError as error:
        return error.problems
    return []


def _workloads(configured: Settings) -> list[str]:
    try:
        workloads.parse(configured.scale_workloads)
    except ValueError as error:
        return [f"MILLRACE_SCALE_WORKLOADS: {error}"]
    return []


def _database(configured: Settings) -> list[str]:
    """Problems of the database; of the embedded one, which may not run, those with its keys."""
    filled = defaults.fill_in(configured)
    embedded = not configured.database_url
    if embedded and not bind_check.requires_key(filled):
        return []
    engine = db.connect(filled.database_url, pool_size=1)
    try:
        db.check_sessions(filled.database_url)
        if not embedded and (problem := schema.read(engine).problem):
            return [f"MILLRACE_DATABASE_URL: {problem}"]
        return bind_check.problems(filled, engine)
    except SettingsError as error:
        return error.problems
    except SQLAlchemyError as error:
        if not embedded:
            return [f"MILLRACE_DATABASE_URL: {str(error).splitlines()[0]}"]
        is_new = not Layout.of(filled.home).data.exists()
        return bind_check.missing_key_problems(filled) if is_new else []
    finally:
        engine.dispose()


def _blobs(configured: Settings) -> list[str]:
    """Writes, reads and deletes a blob."""
    folder = f"check/{ids.new().hex}/"
    try:
        store = open_store(configured.blobs, configured.s3_endpoint)
        store.put(folder + "probe", b"probe")
        store.get(folder + "probe")
        store.delete_prefix(folder)
    except BlobStoreUnavailable as error:
        return [f"MILLRACE_BLOBS: {error}"]
    return []


def _redis(url: str) -> list[str]:
    try:
        call_redis.connect(url).ping()
    except (RedisError, ValueError) as error:
        return [f"MILLRACE_REDIS_URL: {error}"]
    return []
