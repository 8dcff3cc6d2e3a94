"""TLS of clients of the api."""

import ssl

from jobs.settings import Settings


def tls_context(settings: Settings) -> ssl.SSLContext:
    """TLS context of this configuration: its CAs and its client certificate."""
    context = ssl.create_default_context(cafile=settings.ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.client_cert:
        context.load_cert_chain(settings.client_cert, settings.client_key)
    return context
