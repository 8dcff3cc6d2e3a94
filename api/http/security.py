"""Security headers of every response, and TLS options."""

import ssl
from typing import Any

from jobs.settings import Settings

_YEAR_S = 365 * 24 * 3600
STATIC_PREFIX = "/dashboard/static/"  #: Static files set their own Cache-Control.
#: Content-Security-Policy that pages extend.
PAGE_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


def headers(settings: Settings) -> list[tuple[str, str]]:
    """Returns the headers of every response. Nothing is cacheable: nearly all of it belongs to a
    tenant."""
    pairs = [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
    ]
    if settings.tls_cert:
        pairs.append(("strict-transport-security", f"max-age={_YEAR_S}"))
    return pairs


def tls(settings: Settings) -> dict[str, Any]:
    """Returns uvicorn's TLS options. With a client CA, clients must have a certificate."""
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
