"""An identity provider on loopback: its keys over HTTP, and tokens that it signs."""

import base64
import hashlib
import json
import secrets
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

from jobs import clock
from jobs.settings import Settings
from tests.support.servers.receiver import HttpServer, Received, Reply

AUDIENCE, CLIENT = "millrace", "the-dashboard"
MADE = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
"""A key for each way to sign; its id is that."""


class IdentityProvider(HttpServer):
    """published: the JWKS; asked: the paths that were; broken: it answers nothing of use; signs_in:
    claims of whoever signs in here."""

    def __init__(self) -> None:
        super().__init__()
        self.published = [published(kid) for kid in MADE]
        self.asked: list[str] = []
        self.broken = False
        self.says: dict[str, str] = {}
        self.signs_in: dict[str, Any] = {}
        self._begun: dict[str, dict[str, str]] = {}  # by code
        self.issuer = self.origin
        self.jwks_url = f"{self.issuer}/keys"

    def settings(self, settings: Settings, **more: str) -> Settings:
        return settings.evolve(**self.named(), **more)

    def named(self) -> dict[str, str]:
        return {"oidc_issuer": self.issuer, "oidc_audience": AUDIENCE}

    def token(self, kid: str = "RS256", *, alg: str = "", key: Any = None, **claims: Any) -> str:
        """A good one, with these claims instead; None: without that."""
        said = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": "somebody",
            "exp": clock.now().timestamp() + 60,
            "tenant": "acme",
        } | claims
        payload = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(payload, key or MADE[kid], alg or kid, headers={"kid": kid})

    def respond(self, request: Received) -> Reply:
        if request.method == "POST":
            said = self.exchange(dict(parse_qsl(request.body.decode())))
            return Reply(200 if said else 400, {}, json.dumps(said).encode())
        parts = urlsplit(request.path)
        if parts.path == "/authorize":
            return Reply(302, {"Location": self.authorize(dict(parse_qsl(parts.query)))})
        said = self.answer(request.path)
        return Reply(200 if said else 503, {}, json.dumps(said).encode())

    def answer(self, path: str) -> dict[str, Any] | None:
        self.asked.append(path)
        if self.broken:
            return None
        if path == "/keys":
            return {"keys": self.published}
        return {
            "issuer": self.issuer,
            "jwks_uri": self.jwks_url,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
        } | self.says

    def authorize(self, query: dict[str, str]) -> str:
        """Whoever comes is signed in at once: where their browser goes then."""
        assert (query["client_id"], query["response_type"]) == (CLIENT, "code")
        code = secrets.token_urlsafe(8)
        self._begun[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def exchange(self, form: dict[str, str]) -> dict[str, Any] | None:
        """Tokens for a code, once, for whoever began it; None: refused."""
        begun = self._begun.pop(form["code"], None)
        proof = hashlib.sha256(form["code_verifier"].encode()).digest()
        expected = base64.urlsafe_b64encode(proof).decode().rstrip("=")
        if begun is None or begun["code_challenge"] != expected:
            return None
        if begun["redirect_uri"] != form["redirect_uri"]:
            return None
        claims = {"nonce": begun["nonce"]} | self.signs_in
        return {
            "id_token": self.token(**(claims | {"aud": CLIENT})),
            "access_token": self.token(**self.signs_in),
            "token_type": "Bearer",
        }


def published(kid: str, alg: str = "", name: str = "") -> dict[str, Any]:
    """The public part of a key, as a JWK; name: another id."""
    made = get_default_algorithms()[alg or kid].to_jwk(MADE[kid].public_key(), as_dict=True)
    return {**made, "kid": name or kid, "use": "sig"}


def running() -> IdentityProvider:
    return IdentityProvider()
