"""Sign-in by OpenID Connect: authorization code flow with PKCE, state and nonce."""

import base64
import secrets
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from urllib.parse import urlencode

from api.auth.oidc import TokenVerifier
from jobs.errors import Forbidden, Unavailable
from jobs.settings import Settings

_TIMEOUT_S = 5
_UNREADABLE = (ValueError, TypeError, LookupError)


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """Sign-in in progress, kept in a sealed cookie of its browser."""

    state: str
    nonce: str
    verifier: str  #: of PKCE
    next: str  #: page to open afterwards

    def matches(self, state: str) -> bool:
        """Returns True if the state is this attempt's; in constant time."""
        return secrets.compare_digest(self.state.encode(), state.encode())


def begin(next: str) -> LoginAttempt:
    """Starts a sign-in."""
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    return LoginAttempt(state, nonce, verifier, next)


class Provider:
    """Identity provider. Methods block and may run on any thread.

    Raises Unavailable where the provider gives no usable answer.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings, self._tokens = settings, TokenVerifier(settings)

    def sign_in_url(self, begun: LoginAttempt, back: str) -> str:
        """Returns the URL of the provider's page; `back`: URL to return to."""
        challenge = base64.urlsafe_b64encode(sha256(begun.verifier.encode()).digest())
        parameters = {
            "response_type": "code",
            "client_id": self._settings.oidc_client_id,
            "redirect_uri": back,
            "scope": "openid",
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": challenge.decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        url = self._endpoint("authorization_endpoint")
        return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"

    def credential(self, begun: LoginAttempt, code: str, back: str) -> str:
        """Exchanges a code for a token that the api accepts. Raises Forbidden."""
        tokens = self._exchange(begun, code, back)
        identity = self._tokens.claims(tokens["id_token"], self._settings.oidc_client_id)
        if identity is None or identity.get("nonce") != begun.nonce:
            raise Forbidden("the identity provider's answer belongs to another sign-in; try again")
        for token in (tokens.get("access_token", ""), tokens["id_token"]):
            if self._tokens.read(token):
                return token
        raise Forbidden(
            "this account has no tenant or role here; its administrator can give it one"
        )

    def _exchange(self, begun: LoginAttempt, code: str, back: str) -> dict[str, str]:
        import httpx

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
        url = self._endpoint("token_endpoint")
        try:
            answer = httpx.post(url, data=form, auth=auth, timeout=_TIMEOUT_S)
            if answer.status_code in (400, 401, 403):
                raise Forbidden("the identity provider rejected this sign-in; try again")
            tokens = answer.raise_for_status().json()
            return {
                "id_token": str(tokens["id_token"]),
                "access_token": str(tokens["access_token"]),
            }
        except (httpx.HTTPError, *_UNREADABLE) as error:
            raise _unavailable() from error

    def _endpoint(self, name: str) -> str:
        import httpx

        try:
            return self._tokens.discover(name)[0]
        except (httpx.HTTPError, *_UNREADABLE) as error:
            raise _unavailable() from error


@lru_cache(maxsize=8)
def provider(settings: Settings) -> Provider:
    """Returns the provider of these settings, cached."""
    return Provider(settings)


def _unavailable() -> Unavailable:
    return Unavailable("the identity provider gives no usable answer", retry_after_s=2)
