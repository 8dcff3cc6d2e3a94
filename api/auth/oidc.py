"""Tokens of an identity provider (OpenID Connect): signed by keys that it publishes, for us, and
not at their end."""

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

import httpx

from jobs import clock
from jobs.api_keys import is_tenant
from jobs.errors import Unavailable
from jobs.identity import ROLES, SCOPES, Role, Scope
from jobs.settings import Settings, is_trusted_url

if TYPE_CHECKING:
    from jwt import PyJWKClient

_ALGORITHMS = ("RS256", "ES256", "EdDSA")
_REQUIRED = ["exp", "iss", "aud", "sub"]
_LEEWAY_S = 10
"""So much may its clock be ahead of ours. A token's end is its end."""
_KEYS_S = 300
"""Published keys are fetched again after that, and for a key that isn't among them."""
_UNKNOWN_S = 30
"""But for one that isn't among them at most so often."""
_TIMEOUT_S = 3
_RETRY_S = 2.0
_MOST_SUBJECT = 200
_DISCOVERY = "/.well-known/openid-configuration"
_UNREADABLE = (ValueError, TypeError, LookupError, RecursionError, OverflowError)


@dataclass(frozen=True, slots=True)
class Token:
    """What a good token says. ends: in seconds since 1970; scopes: those of its role, or fewer."""

    tenant: str
    role: Role
    scopes: frozenset[Scope]
    subject: str
    ends: float


class TokenVerifier:
    """Blocks while it fetches keys; from any thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._client: PyJWKClient | None = None
        self._away_until_s = 0.0

    def read(self, token: str) -> Token | None:
        """What it says; None: it is not good. Raises Unavailable where keys can't be fetched."""
        claims = self.claims(token, self._settings.oidc_audience)
        try:
            return self._token(claims) if claims else None
        except _UNREADABLE:
            return None

    def claims(self, token: str, audience: str) -> dict[str, Any] | None:
        """Of a token that is the provider's, for that audience, and not at its end; else None.
        Raises Unavailable where keys can't be fetched."""
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            if header["alg"] not in _ALGORITHMS or not (key := self._key(header["kid"])):
                return None
            found: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(_ALGORITHMS),
                audience=audience,
                issuer=self._settings.oidc_issuer,
                leeway=_LEEWAY_S,
                options={"require": _REQUIRED},
            )
            return found
        except (jwt.PyJWTError, *_UNREADABLE):
            return None

    def _key(self, kid: str) -> Any:
        import jwt

        with self._lock:
            published = self._published()
            try:
                key = published.get_signing_key(kid)
            except jwt.PyJWKClientConnectionError as error:
                raise self._away() from error
            except jwt.PyJWKClientError:  # not among them
                return None
        return key if key.algorithm_name in _ALGORITHMS else None

    def _published(self) -> "PyJWKClient":
        """With keys in hand. Raises Unavailable."""
        import jwt

        if clock.monotonic() < self._away_until_s:
            raise _unavailable()
        try:
            if self._client is None:
                self._client = jwt.PyJWKClient(
                    self._settings.oidc_jwks_url or self.discovered("jwks_uri")[0],
                    lifespan=_KEYS_S,
                    cooldown_duration=_UNKNOWN_S,
                    timeout=_TIMEOUT_S,
                )
            self._client.get_signing_keys()
        except (jwt.PyJWTError, httpx.HTTPError, OSError, *_UNREADABLE) as error:
            raise self._away() from error
        return self._client

    def _away(self) -> Unavailable:
        """It is left alone for a moment."""
        self._away_until_s = clock.monotonic() + _RETRY_S
        return _unavailable()

    def discovered(self, *names: str) -> list[str]:
        """The addresses that it says it has: for its keys, for tokens, …. Raises what httpx raises,
        ValueError and LookupError."""
        issuer = self._settings.oidc_issuer
        answer = httpx.get(issuer.rstrip("/") + _DISCOVERY, timeout=_TIMEOUT_S).raise_for_status()
        said = answer.json()
        found = [str(said[name]) for name in names]
        if said["issuer"] != issuer or not all(map(is_trusted_url, found)):
            raise ValueError("it calls itself otherwise, or is asked in the clear")
        return found

    def _token(self, claims: dict[str, Any]) -> Token | None:
        tenant = claims.get(self._settings.oidc_tenant_claim)
        role = claims.get(self._settings.oidc_role_claim, "tenant")
        subject, ends = claims["sub"], float(claims["exp"])
        if not isinstance(tenant, str) or not is_tenant(tenant) or role not in ROLES:
            return None
        if not subject.isprintable() or not 0 < len(subject) <= _MOST_SUBJECT:
            return None
        if ends <= clock.now().timestamp():
            return None
        scopes = ROLES[role] & _scopes(claims.get("scope"))
        return Token(tenant, cast(Role, role), scopes, subject, ends)


def _unavailable() -> Unavailable:
    why = "the identity provider's keys can't be fetched"
    return Unavailable(why, retry_after_s=_RETRY_S + clock.jitter(1))


def _scopes(claim: Any) -> frozenset[Scope]:
    """Those that the claim names, as words or as a list; without one: all."""
    if claim is None:
        return frozenset(SCOPES)
    words = claim.split() if isinstance(claim, str) else claim
    return frozenset(scope for scope in SCOPES if scope in words)
