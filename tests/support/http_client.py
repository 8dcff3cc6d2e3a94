"""httpx as tests use it, in this process: patient, and without reading the CAs for each request."""

import os
import ssl
from functools import cache
from inspect import signature
from typing import Any

import httpx
from httpx._transports import default

from tests.support.wait import PATIENCE_S

_new_context = default.create_ssl_context


def configure() -> None:
    """Gives requests the time that tests have, in place of 5 s: a slow machine is no failure.

    Keeps all idle connections: of those above a limit httpcore also closes one that a request has
    just been given (https://github.com/encode/httpcore/issues/1110).
    Shares the default TLS context: one is made for each client, and for each request without one,
    in 20 ms of CPU time, twice the interval of a poll.
    """
    limit = signature(httpx.get).parameters["timeout"].default
    limit.connect = limit.read = limit.write = limit.pool = PATIENCE_S
    signature(httpx.Client).parameters["limits"].default.max_keepalive_connections = None
    default.create_ssl_context = _context


def _context(
    verify: ssl.SSLContext | str | bool = True, cert: Any = None, trust_env: bool = True
) -> ssl.SSLContext:
    if verify is True and cert is None:
        names = ("SSL_CERT_FILE", "SSL_CERT_DIR") if trust_env else ()
        return _default_context(trust_env, *map(os.environ.get, names))
    return _new_context(verify=verify, cert=cert, trust_env=trust_env)


@cache
def _default_context(trust_env: bool, *files: str | None) -> ssl.SSLContext:
    return _new_context(trust_env=trust_env)
