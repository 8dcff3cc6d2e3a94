"""What every answer carries, and who may connect: TLS, and clients' certificates."""

import ssl
from typing import Any

from jobs.settings import Settings

_YEAR_S = 365 * 24 * 3600
KEPT = "/dashboard/static/"
"""What lies under it says itself how long it is kept."""
PAGE_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
"""Of a page, before it names what it needs."""


def headers(settings: Settings) -> list[tuple[str, str]]:
    """On every answer, the refusals of a connection too. Nothing is for caches: nearly all of it
    belongs to a tenant."""
    found = [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
    ]
    if settings.tls_cert:
        found.append(("strict-transport-security", f"max-age={_YEAR_S}"))
    return found


def tls(settings: Settings) -> dict[str, Any]:
    """uvicorn's options. Where clients' certificates are asked for, none connects without."""
    if not settings.tls_cert:
        return {}
    mutual = settings.tls_client_ca is not None
    return {
        "ssl_certfile": settings.tls_cert,
        "ssl_keyfile": settings.tls_key,
        "ssl_ca_certs": settings.tls_client_ca,
        "ssl_cert_reqs": ssl.CERT_REQUIRED if mutual else ssl.CERT_NONE,
        "ssl_context_factory": _at_least_1_2,
    }


def _at_least_1_2(_: Any, default: Any) -> ssl.SSLContext:
    context: ssl.SSLContext = default()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
