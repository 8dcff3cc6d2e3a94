"""Signing in at an identity provider (OpenID Connect): the authorization code flow, with PKCE, a
state and a nonce."""

import base64
import secrets
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from urllib.parse import urlencode

import httpx

from api.auth.oidc import TokenVerifier
from jobs.errors import Forbidden, Unavailable
from jobs.settings import Settings

_TIMEOUT_S = 5
_UNREADABLE = (httpx.HTTPError, ValueError, TypeError, LookupError)


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """What only the browser that began it has, in a sealed cookie. next: where to go then."""

    state: str
    nonce: str
    verifier: str
    next: str

    def is_of(self, state: str) -> bool:
        return secrets.compare_digest(self.state.encode(), state.encode())


def begin(next: str) -> LoginAttempt:
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    return LoginAttempt(state, nonce, verifier, next)


class Provider:
    """Blocks while it asks; from any thread. Every method raises Unavailable where the provider
    gives no answer of use."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._tokens = settings, TokenVerifier(settings)

    def sign_in_url(self, begun: LoginAttempt, back: str) -> str:
        """Where the browser goes; back: where it comes back to."""
        challenge = base64.urlsafe_b64encode(sha256(begun.verifier.encode()).digest())
        asked = {
            "response_type": "code",
            "client_id": self._settings.oidc_client_id,
            "redirect_uri": back,
            "scope": "openid",
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": challenge.decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        where = self._endpoint("authorization_endpoint")
        return f"{where}{'&' if '?' in where else '?'}{urlencode(asked)}"

    def credential(self, begun: LoginAttempt, code: str, back: str) -> str:
        """The token that the api takes, for a code that the browser brought. Raises Forbidden."""
        said = self._exchange(begun, code, back)
        identity = self._tokens.claims(said["id_token"], self._settings.oidc_client_id)
        if identity is None or identity.get("nonce") != begun.nonce:
            raise Forbidden("the identity provider's answer is not to this sign-in; try again")
        for token in (said.get("access_token", ""), said["id_token"]):
            if self._tokens.read(token):
                return token
        raise Forbidden(
            "this account has no tenant or role here; its administrator can give it one"
        )

    def _exchange(self, begun: LoginAttempt, code: str, back: str) -> dict[str, str]:
        settings = self._settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back,
            "code_verifier": begun.verifier,
            "client_id": settings.oidc_client_id,
        }
        secret = settings.oidc_client_secret
        auth = httpx.BasicAuth(settings.oidc_client_id, secret) if secret else None
        where = self._endpoint("token_endpoint")
        try:
            answer = httpx.post(where, data=form, auth=auth, timeout=_TIMEOUT_S)
            if answer.status_code in (400, 401, 403):
                raise Forbidden("the identity provider refuses this sign-in; try again")
            said = answer.raise_for_status().json()
            return {"id_token": str(said["id_token"]), "access_token": str(said["access_token"])}
        except _UNREADABLE as error:
            raise _away() from error

    def _endpoint(self, name: str) -> str:
        try:
            return self._tokens.discover(name)[0]
        except _UNREADABLE as error:
            raise _away() from error


@lru_cache(maxsize=8)
def provider_of(settings: Settings) -> Provider:
    return Provider(settings)


def _away() -> Unavailable:
    return Unavailable("the identity provider gives no answer of use", retry_after_s=2)
