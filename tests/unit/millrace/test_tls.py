"""Addresses by TLS are verified, however their scheme is written."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace import APIConnectionError, Client, tls_context
from millrace.tls import verification
from tests.support.tls import Authority, tls_proxy


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca")


@pytest.fixture
def port(authority: Authority, tmp_path: Path) -> Iterator[int]:
    """The port of a server that takes no request after the handshake."""
    with tls_proxy(str(tmp_path / "nobody"), authority.pair("server")) as found:
        yield found


def error_of(url: str, verify: ssl.SSLContext | bool = True) -> str:
    with (
        Client(url, verify=verify, max_retries=0) as made,
        pytest.raises(APIConnectionError) as found,
    ):
        made.jobs.get("job_1")
    return str(found.value)


def test_a_certificate_of_a_ca_of_the_system_or_your_own_is_taken_and_no_other(
    port: int, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scheme in ("https", "HTTPS", "Https"):
        assert "CERTIFICATE_VERIFY_FAILED" in error_of(f"{scheme}://127.0.0.1:{port}")
    own = tls_context(authority.cert)
    assert "CERTIFICATE_VERIFY_FAILED" not in error_of(f"https://127.0.0.1:{port}", own)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))  # where OpenSSL has them
    assert "CERTIFICATE_VERIFY_FAILED" not in error_of(f"https://127.0.0.1:{port}")


def test_only_whoever_says_so_goes_without() -> None:
    assert verification("HTTPS://x", False) is False
    found = verification("HTTPS://x", True)
    assert isinstance(found, ssl.SSLContext)
    assert (found.verify_mode, found.check_hostname) == (ssl.CERT_REQUIRED, True)
