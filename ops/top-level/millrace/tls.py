"""TLS of clients of the api."""

import ssl
from pathlib import Path


def verification(url: str, verify: ssl.SSLContext | bool) -> ssl.SSLContext | bool:
    """Returns what httpx verifies an address by.

    verify: True: the system's CAs, in place of certifi's. Plain HTTP does without them: they take
    20 ms to read.
    """
    if not url.lower().startswith("https:"):
        return False
    return tls_context() if verify is True else verify


def tls_context(
    ca: Path | None = None, cert: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """TLS context that trusts these CAs (default: the system's) and shows a client certificate.

    ca, cert, key: files of PEM.
    """
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert:
        context.load_cert_chain(cert, key)
    return context
