"""Requests without a credential, on loopback until the first key is made: only those that come
from this machine, and from no page of another site, are served.

Where no credential is needed, any page in a browser could send requests for its user: across
sites, from another port of loopback, or under a name of its own that resolves to loopback (DNS
rebinding). A reverse proxy on this machine would make everybody an admin.
"""

from collections.abc import Iterable

from jobs.errors import Unauthenticated
from jobs.settings import LOOPBACK

Headers = Iterable[tuple[bytes, bytes]]

_LOOPBACK_NAMES = frozenset(name.encode() for name in LOOPBACK)
_PROXY_HEADERS = frozenset((b"forwarded", b"via", b"x-real-ip"))
_PROXY_PREFIX = b"x-forwarded-"
_DEFAULT_PORTS = {b"http": b"80", b"https": b"443"}

_OTHER_SITE = (
    "without a key only requests to loopback by its own name (127.0.0.1, localhost) are served, "
    "and none from pages of another site or port; `millrace keys create` makes a key"
)
_PROXIED = (
    "without a key no request that comes through a proxy is served, and the header {} says that "
    "this one does; `millrace keys create` makes a key"
)


def check(headers: Headers) -> None:
    """Raises Unauthenticated for requests through a proxy, across sites or across ports."""
    host = origin = None
    for name, value in headers:
        if name in _PROXY_HEADERS or name.startswith(_PROXY_PREFIX):
            raise Unauthenticated(_PROXIED.format(name.decode("latin-1")))
        if name == b"host":
            host = value
            _check_loopback(host)
        elif name == b"origin":
            origin = value
        elif name == b"sec-fetch-site" and value in (b"cross-site", b"same-site"):
            raise Unauthenticated(_OTHER_SITE)
    if origin is not None:
        _check_origin(origin, host or b"")


def _check_loopback(authority: bytes) -> None:
    if _name(authority) not in _LOOPBACK_NAMES:
        raise Unauthenticated(_OTHER_SITE)


def _check_origin(origin: bytes, host: bytes) -> None:
    """Raises Unauthenticated unless a page of loopback, served on the api's own port, sent it."""
    scheme, _, authority = origin.partition(b"://")
    _check_loopback(authority)
    default = _DEFAULT_PORTS.get(scheme, b"")
    if _port(authority, default) != _port(host, default):
        raise Unauthenticated(_OTHER_SITE)


def _name(authority: bytes) -> bytes:
    if authority.startswith(b"["):
        return authority[1:].partition(b"]")[0]
    return authority.partition(b":")[0].lower()


def _port(authority: bytes, default: bytes) -> bytes:
    return authority.rpartition(b"]")[2].partition(b":")[2] or default
