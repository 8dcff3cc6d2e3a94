"""An identity provider on loopback: its keys over HTTP, and tokens that it signs."""

import base64
import hashlib
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

from jobs import clock
from jobs.settings import Settings

AUDIENCE, CLIENT = "millrace", "the-dashboard"
MADE = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
"""A key for each way to sign; its id is that."""


class IdentityProvider:
    """published: the JWKS; asked: the paths that were; broken: it answers nothing of use; signs_in:
    claims of whoever signs in here."""

    def __init__(self) -> None:
        self.published = [published(kid) for kid in MADE]
        self.asked: list[str] = []
        self.broken = False
        self.says: dict[str, str] = {}
        self.signs_in: dict[str, Any] = {}
        self._begun: dict[str, dict[str, str]] = {}  # by code
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def jwks_url(self) -> str:
        return f"{self.issuer}/keys"

    def settings(self, settings: Settings, **more: str) -> Settings:
        """Settings that name this as the identity provider."""
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

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def published(kid: str, alg: str = "", name: str = "") -> dict[str, Any]:
    """The public part of a key, as a JWK; name: another id."""
    made = get_default_algorithms()[alg or kid].to_jwk(MADE[kid].public_key(), as_dict=True)
    return {**made, "kid": name or kid, "use": "sig"}


def _handler(provider: IdentityProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/authorize":
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                self.send_response(302)
                self.send_header("Location", provider.authorize(query))
                self.end_headers()
                return
            said = provider.answer(self.path)
            self.send_response(200 if said else 503)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(raw).items()}
            said = provider.exchange(form)
            self.send_response(200 if said else 400)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        def log_message(self, *_: object) -> None:
            """Quiet."""

    return Handler


@contextmanager
def running() -> Iterator[IdentityProvider]:
    provider = IdentityProvider()
    provider.start()
    try:
        yield provider
    finally:
        provider.stop()
