"""Requests that are served without a credential, and those that aren't."""

import pytest

from api.auth import open_access
from jobs.errors import Unauthenticated
from tests.support.cases import each

HOST = (b"host", b"127.0.0.1:8000")


SERVED = [
    [],
    [HOST],
    [HOST, (b"origin", b"http://127.0.0.1:8000")],
    [HOST, (b"origin", b"http://localhost:8000"), (b"sec-fetch-site", b"same-origin")],
    [(b"host", b"localhost"), (b"origin", b"http://localhost")],
    [(b"host", b"localhost:443"), (b"origin", b"https://localhost")],
    [(b"host", b"[::1]:8000"), (b"origin", b"http://[::1]:8000")],
]


def test_requests_of_this_machine_are_served() -> None:
    for headers, case in each(SERVED):
        with case:
            open_access.check(headers)


def test_what_comes_through_a_proxy_or_from_pages_of_other_sites_is_rejected() -> None:
    forwarded = {
        b"forwarded": b"for=203.0.113.9",
        b"x-forwarded-for": b"203.0.113.9",
        b"x-forwarded-host": b"127.0.0.1",
        b"via": b"1.1 proxy",
        b"x-real-ip": b"203.0.113.9",
    }
    for name, case in each(forwarded):
        with case, pytest.raises(Unauthenticated, match=name.decode()):
            open_access.check([HOST, (name, forwarded[name])])
    for more, case in each((name, value) for name in OTHERS for value in OTHERS[name]):
        with case, pytest.raises(Unauthenticated, match="another site or port"):
            open_access.check([HOST, more])


ORIGINS = [b"http://127.0.0.1:3000", b"http://127.0.0.1", b"https://other.example:8000", b"null"]
OTHERS = {
    b"origin": ORIGINS,
    b"sec-fetch-site": [b"cross-site", b"same-site"],
    b"host": [b"rebound.example:8000", b""],
}
