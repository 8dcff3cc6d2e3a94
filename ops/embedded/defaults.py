"""Settings with every address filled in: what is not configured is the embedded service."""

import re
import ssl

from jobs import settings
from jobs.settings import Settings
from millrace.tls import tls_context
from ops.embedded import secret_key
from ops.embedded.layout import Layout


def load() -> Settings:
    """Settings from the environment; raises SettingsError with every problem."""
    return fill_in(settings.load())


def fill_in(configured: Settings) -> Settings:
    """Fills in the embedded services' addresses where none are given, and their database's key."""
    layout, given = Layout.of(configured.home), configured.database_url
    return configured.evolve(
        # SQLAlchemy's name of the driver
        database_url=re.sub(
            r"^postgres(ql)?://", "postgresql+psycopg://", given or layout.postgres_url()
        ),
        redis_url=configured.redis_url or layout.redis_url,
        # A folder here serves one machine: with a database elsewhere there may be others.
        blobs=configured.blobs or ("" if given else f"file:{configured.home.resolve()}/blobs"),
        secret_key=configured.secret_key or ("" if given else secret_key.read(configured.home)),
    )


def own_tls_context(settings: Settings) -> ssl.SSLContext:
    """TLS context of clients of this configuration: its CAs and its client certificate."""
    return tls_context(settings.ca, settings.client_cert, settings.client_key)
