"""Settings with every address filled in: what is not configured is the embedded service."""

from jobs import settings
from jobs.settings import Settings
from ops.embedded import secret_key
from ops.embedded.postgres import EmbeddedPostgres
from ops.embedded.redis import EmbeddedRedis


def load() -> Settings:
    """Settings from the environment; raises SettingsError with every problem."""
    return fill_in(settings.load())


def fill_in(found: Settings) -> Settings:
    """The same, with the embedded services' addresses where none are given, and the key that
    belongs to the embedded database."""
    database = found.database_url or EmbeddedPostgres(found.home).url
    redis = found.redis_url or EmbeddedRedis(found.home).url
    # A folder here serves one machine: with a database elsewhere there may be others.
    blobs = found.blobs or ("" if found.database_url else f"file:{found.home.resolve()}/blobs")
    key = found.secret_key or ("" if found.database_url else secret_key.read(found.home))
    return found.evolve(
        database_url=_with_driver(database), redis_url=redis, blobs=blobs, secret_key=key
    )


def _with_driver(url: str) -> str:
    """The URL as SQLAlchemy takes it: with the driver that we use."""
    for scheme in ("postgresql://", "postgres://"):
        if url.startswith(scheme):
            return "postgresql+psycopg://" + url.removeprefix(scheme)
    return url
