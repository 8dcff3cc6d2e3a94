"""Tokens: good ones of one's own identity provider, and no others."""

import base64
import hmac
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt import jwks_client

from api.auth import oidc
from api.auth.oidc import TokenVerifier
from jobs import clock
from jobs.errors import Unavailable
from jobs.identity import ROLES
from jobs.settings import Settings
from tests.support.cases import each
from tests.support.servers.identity_provider import MADE, IdentityProvider, published, running
from tests.support.wait import PATIENCE_S
from tests.unit.api.conftest import Clock


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[IdentityProvider]:
    monkeypatch.setattr(oidc, "_TIMEOUT_S", PATIENCE_S)
    with running() as started:
        yield started


@pytest.fixture
def tokens(provider: IdentityProvider) -> TokenVerifier:
    return TokenVerifier(provider.settings(Settings()))


def forged(header: dict[str, Any], claims: dict[str, Any] | None = None, key: bytes = b"") -> str:
    """Signed by hand, as HS256 has it, or not at all."""
    head, body = (encoded(json.dumps(part).encode()) for part in (header, claims or {}))
    signature = hmac.digest(key, f"{head}.{body}".encode(), "sha256") if key else b""
    return f"{head}.{body}.{encoded(signature)}"


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).decode().rstrip("=")


@pytest.mark.parametrize("kid", MADE)
def test_a_token_has_a_caller(provider: IdentityProvider, tokens: TokenVerifier, kid: str) -> None:
    ends = int(clock.now().timestamp()) + 60
    said = tokens.read(provider.token(kid, exp=ends))
    assert (said.tenant, said.role, said.scopes) == ("acme", "tenant", ROLES["tenant"])
    assert (said.subject, said.ends) == ("somebody", ends)
    assert provider.asked == ["/.well-known/openid-configuration", "/keys"]


def test_claims_may_be_called_otherwise(provider: IdentityProvider) -> None:
    named = {"oidc_tenant_claim": "https://x/org", "oidc_role_claim": "r"}
    tokens = TokenVerifier(provider.settings(Settings(), oidc_jwks_url=provider.jwks_url, **named))
    said = tokens.read(provider.token(**{"https://x/org": "beta", "r": "operator"}))
    assert (said.tenant, said.role) == ("beta", "operator")
    assert provider.asked == ["/keys"]


def test_a_scope_claim_narrows_the_role(provider: IdentityProvider, tokens: TokenVerifier) -> None:
    scopes: list[tuple[str | list[str], set[str]]] = [
        ("read", {"read"}),
        ("openid read infer", {"read", "infer"}),
        (["read", "submit"], {"read", "submit"}),
        ("read admin", {"read"}),
        ("openid", set()),
    ]
    for (claim, narrowed), case in each(scopes):
        with case:
            said = tokens.read(provider.token(scope=claim))
            assert said.scopes == narrowed


OTHER: dict[str, list[Any]] = {
    "aud": ["another", None],
    "iss": ["https://another", None],
    "sub": [None, "", "x\ny", "x" * 300],
    "exp": [None, 0, "soon"],
    "nbf": [2**40],
    "tenant": [None, "", "*", "a b", ["acme"]],
    "role": ["root", ["admin"]],
    "scope": [7],
}


def test_wrong_claims_make_no_token(provider: IdentityProvider, tokens: TokenVerifier) -> None:
    assert tokens.read(provider.token()) is not None
    assert tokens.read(provider.token(iat=int(clock.now().timestamp()) + 5)) is not None
    wrong = [{claim: value} for claim in OTHER for value in OTHER[claim]]
    # Within the leeway for clocks that differ, which an end has not.
    ended = {"exp": clock.now().timestamp() - 2}
    for claims, case in each([*wrong, ended, {"role": None, "tenant": 7}]):
        with case:
            assert tokens.read(provider.token(**claims)) is None


def test_a_false_signature_is_refused(provider: IdentityProvider, tokens: TokenVerifier) -> None:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public = MADE["RS256"].public_key().public_bytes(serialization.Encoding.PEM, form)
    claims = jwt.decode(provider.token(), options={"verify_signature": False})
    stranger = rsa.generate_private_key(65537, 2048)
    good = provider.token()
    head, body, signature = good.split(".")
    other = provider.token(tenant="beta").split(".")[1]
    for token in (
        provider.token(key=stranger),  # another key
        forged({"alg": "HS256", "kid": "RS256"}, claims, public),  # no secret
        forged({"alg": "RS256", "kid": "RS256"}, claims, public),
        provider.token(alg="RS512"),  # another way
        forged({"alg": "none", "kid": "RS256"}, claims),
        f"{head}.{other}.{signature}",
        f"{head}.{body}.",
        provider.token("ES256", alg="RS256", key=MADE["RS256"]),  # another key's id
        forged({"alg": "RS256"}),
        forged({"alg": "RS256", "kid": 7}),
        forged({"alg": ["RS256"], "kid": "RS256"}),
        "..",
        "a.b.c",
        "ä.ö.ü",
    ):
        assert tokens.read(token) is None, token
    assert tokens.read(good) is not None


def test_a_secret_key_among_the_published_is_not_used(provider: IdentityProvider) -> None:
    secret = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"
    provider.published = [published("RS256"), {"kty": "oct", "kid": "s", "k": secret}]
    tokens = TokenVerifier(provider.settings(Settings()))
    claims = jwt.decode(provider.token(), options={"verify_signature": False})
    for alg in ("HS256", "RS256"):
        token = forged({"alg": alg, "kid": "s"}, claims, base64.urlsafe_b64decode(secret))
        assert tokens.read(token) is None


@given(st.binary(max_size=300), st.recursive(st.none() | st.text(), st.lists))
def test_whatever_comes_is_read_without_a_crash(noise: bytes, nested: object) -> None:
    tokens = TokenVerifier(Settings(oidc_issuer="http://127.0.0.1:9", oidc_audience="x"))
    text = encoded(noise)
    header = {"alg": "HS256", "kid": nested}
    for token in (noise.decode("latin-1"), f"{text}.{text}.{text}", forged(header)):
        assert tokens.read(token) is None
    deep = encoded(b"[" * 5000)
    assert tokens.read(f"{deep}.{deep}.{deep}") is None


def test_a_new_key_is_fetched_when_a_token_names_it_but_not_for_every_token(
    provider: IdentityProvider, tokens: TokenVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.published = [published("ES256")]
    assert tokens.read(provider.token("ES256"))
    provider.published.append(published("RS256"))
    for _ in range(5):
        assert tokens.read(provider.token("RS256")) is None  # those in hand are new
    assert provider.asked.count("/keys") == 1
    later_s = clock.monotonic() + 60
    monkeypatch.setattr(jwks_client, "time", SimpleNamespace(monotonic=lambda: later_s))
    assert tokens.read(provider.token("RS256"))
    assert provider.asked.count("/keys") == 2


def test_while_its_keys_are_away_nobody_can_tell_and_it_is_left_alone(
    provider: IdentityProvider, tokens: TokenVerifier, time: Clock
) -> None:
    provider.broken = True
    for _ in range(5):
        with pytest.raises(Unavailable):
            tokens.read(provider.token())
    assert len(provider.asked) == 1
    provider.broken = False
    time.now_s = 10.0
    assert tokens.read(provider.token())


def test_another_provider_or_one_without_keys_is_not_believed(provider: IdentityProvider) -> None:
    for says in (
        {"issuer": "https://another"},
        {"jwks_uri": "http://keys.example/"},
        {"jwks_uri": ""},
    ):
        provider.says = says
        with pytest.raises(Unavailable):
            TokenVerifier(provider.settings(Settings())).read(provider.token())
        assert "/keys" not in provider.asked
    provider.says = {}
    for keys in ([], ["x"], [{"kty": "RSA"}]):
        provider.published = keys
        with pytest.raises(Unavailable):
            TokenVerifier(provider.settings(Settings())).read(provider.token())
