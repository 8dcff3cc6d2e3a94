"""Tokens of an OpenID Connect provider: signature, audience, issuer and expiry."""

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from jobs import clock
from jobs.api_keys import is_tenant
from jobs.errors import Unavailable
from jobs.identity import ROLES, SCOPES, Role, Scope
from jobs.settings import Settings, is_trusted_url

if TYPE_CHECKING:
    from jwt import PyJWKClient

_ALGORITHMS = ("RS256", "ES256", "EdDSA")
_REQUIRED = ["exp", "iss", "aud", "sub"]
_LEEWAY_S = 10  #: The provider's clock may be ahead of ours by this much; expiry has no leeway.
_KEYS_S = 300  #: Published keys are fetched again after this time, and for an unknown key id.
_UNKNOWN_S = 30  #: Least time between two fetches for an unknown key id.
_TIMEOUT_S = 3
_RETRY_S = 2.0
_MAX_SUBJECT = 200
_DISCOVERY = "/.well-known/openid-configuration"
_UNREADABLE = (ValueError, TypeError, LookupError, RecursionError, OverflowError)


@dataclass(frozen=True, slots=True)
class Token:
    """Claims of a valid token."""

    tenant: str
    role: Role
    scopes: frozenset[Scope]  #: those of its role, or fewer
    subject: str
    ends: float  #: expiry, in Unix seconds


class TokenVerifier:
    """Verifies tokens. Blocks while it fetches keys; thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._client: PyJWKClient | None = None
        self._retry_at_s = 0.0

    def read(self, token: str) -> Token | None:
        """Returns a token's claims; None if it is not valid. Raises Unavailable where keys can't
        be fetched."""
        claims = self.claims(token, self._settings.oidc_audience)
        try:
            return self._token(claims) if claims else None
        except _UNREADABLE:
            return None

    def claims(self, token: str, audience: str) -> dict[str, Any] | None:
        """Returns the raw claims of a token with a valid signature, audience and expiry; else
        None.

        Raises Unavailable where keys can't be fetched.
        """
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            if header["alg"] not in _ALGORITHMS or not (key := self._key(header["kid"])):
                return None
            values: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(_ALGORITHMS),
                audience=audience,
                issuer=self._settings.oidc_issuer,
                leeway=_LEEWAY_S,
                options={"require": _REQUIRED},
            )
            return values
        except (jwt.PyJWTError, *_UNREADABLE):
            return None

    def _key(self, kid: str) -> Any:
        import jwt

        with self._lock:
            published = self._published()
            try:
                key = published.get_signing_key(kid)
            except jwt.PyJWKClientConnectionError as error:
                raise self._unreachable() from error
            except jwt.PyJWKClientError:  # not among them
                return None
        return key if key.algorithm_name in _ALGORITHMS else None

    def _published(self) -> "PyJWKClient":
        """Returns the client, with its keys fetched. Raises Unavailable."""
        import httpx
        import jwt

        if clock.monotonic() < self._retry_at_s:
            raise _unavailable()
        try:
            if self._client is None:
                self._client = jwt.PyJWKClient(
                    self._settings.oidc_jwks_url or self.discover("jwks_uri")[0],
                    lifespan=_KEYS_S,
                    cooldown_duration=_UNKNOWN_S,
                    timeout=_TIMEOUT_S,
                )
            self._client.get_signing_keys()
        except (jwt.PyJWTError, httpx.HTTPError, OSError, *_UNREADABLE) as error:
            raise self._unreachable() from error
        return self._client

    def _unreachable(self) -> Unavailable:
        """Opens the circuit: no fetch is tried for a moment."""
        self._retry_at_s = clock.monotonic() + _RETRY_S
        return _unavailable()

    def discover(self, *names: str) -> list[str]:
        """Returns addresses from the provider's discovery document.

        Raises what httpx raises, ValueError and LookupError.
        """
        import httpx  # for a provider's documents alone

        issuer = self._settings.oidc_issuer
        response = httpx.get(issuer.rstrip("/") + _DISCOVERY, timeout=_TIMEOUT_S).raise_for_status()
        document = response.json()
        values = [str(document[name]) for name in names]
        if document["issuer"] != issuer or not all(map(is_trusted_url, values)):
            raise ValueError("its issuer differs, or an address is not HTTPS")
        return values

    def _token(self, claims: dict[str, Any]) -> Token | None:
        tenant = claims.get(self._settings.oidc_tenant_claim)
        role = claims.get(self._settings.oidc_role_claim, "tenant")
        subject, ends = claims["sub"], float(claims["exp"])
        if not isinstance(tenant, str) or not is_tenant(tenant) or role not in ROLES:
            return None
        if not subject.isprintable() or not 0 < len(subject) <= _MAX_SUBJECT:
            return None
        if ends <= clock.now().timestamp():
            return None
        scopes = ROLES[role] & _granted_scopes(claims.get("scope"))
        return Token(tenant, cast(Role, role), scopes, subject, ends)


def _unavailable() -> Unavailable:
    reason = "the identity provider's keys can't be fetched"
    return Unavailable(reason, retry_after_s=_RETRY_S + clock.jitter(1))


def _granted_scopes(claim: Any) -> frozenset[Scope]:
    """Returns the scopes that a claim (a string or a list) names; all without a claim."""
    if claim is None:
        return frozenset(SCOPES)
    words = claim.split() if isinstance(claim, str) else claim
    return frozenset(scope for scope in SCOPES if scope in words)
