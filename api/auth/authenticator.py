"""Authentication by credential: an API key, a token of an identity provider, or none on loopback
until the first key is made."""

import asyncio
from dataclasses import replace
from functools import partial
from hashlib import sha256
from math import inf

from api import background
from api.auth import open_access
from api.auth.cache import CredentialCache, LookupResult
from api.auth.invalidation import listen
from api.auth.oidc import TokenVerifier
from api.auth.open_access import Headers
from jobs import api_keys, clock, ids
from jobs.errors import Unauthenticated
from jobs.identity import OPEN, ROLES, Caller
from jobs.settings import LOOPBACK, Settings
from jobs.store import db
from jobs.store.tenancy import act, acting
from jobs.store.tenants import api_keys as store
from jobs.store.tenants import tenants

_CONNECTIONS = 3
_STATEMENT_S = 5.0
_MAX_BYTES = 8192
_KEY_BYTES = 46
_NOTHING = b""
_HEADERS = frozenset((b"authorization", b"x-api-key"))

_MISSING = "the request has no credential; send a key: `Authorization: Bearer mk_…`"
_NOT_VALID = "the key or token is unknown, or no longer valid; `millrace keys create` makes one"


class Authenticator:
    """Finds the Caller of a request. Every method runs on the event loop."""

    def __init__(self, settings: Settings) -> None:
        # Connections of its own: requests that use all others don't block authentication.
        self._database = db.connect(
            settings.database_url, _CONNECTIONS, statement_timeout_s=_STATEMENT_S, role=db.API
        )
        self._url = settings.database_url
        self._tokens = TokenVerifier(settings) if settings.oidc_issuer else None
        self._may_be_open = settings.host in LOOPBACK and not self._tokens
        self._cache = CredentialCache(self._look_up, is_slow=_is_token)
        self._listener: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts to listen for changed credentials."""
        self._listener = background.keep("changed keys", partial(listen, self._url, self.forget))

    async def stop(self) -> None:
        """Stops listening, and closes the database connections."""
        if self._listener:
            self._listener.cancel()
            await asyncio.wait({self._listener})
        self._cache.stop()
        self._database.dispose()

    def forget(self, tenant: str) -> None:
        """Invalidates what is cached of a tenant, or of all ("")."""
        self._cache.forget(tenant)
        self._cache.forget(OPEN.tenant)  # the first key, of any tenant, ends open access

    def known_tenant(self, header: bytes, value: bytes) -> str:
        """Returns the tenant of a header's credential, where it is cached; else ""."""
        credential = value.partition(b" ")[2].strip() if header == b"authorization" else value
        return self._cache.known_tenant(sha256(credential).digest())

    async def authenticate(self, headers: Headers) -> Caller:
        """Returns the caller.

        Raises Unauthenticated; Unavailable or the store's errors where the lookup fails.
        """
        if self._may_be_open:
            if caller := await self._cache.get(_NOTHING, _NOTHING):
                open_access.check(headers)
                return caller
            self._may_be_open = False
        credential = _credential(headers)
        if not self._is_well_formed(credential):
            raise Unauthenticated(_NOT_VALID)
        if caller := await self._cache.get(sha256(credential).digest(), credential):
            return caller
        raise Unauthenticated(_NOT_VALID)

    def _is_well_formed(self, credential: bytes) -> bool:
        """Returns True if it can be a key or a token; anything else is not looked up."""
        if credential.startswith(b"mk_"):
            return len(credential) == _KEY_BYTES
        return self._tokens is not None and credential.count(b".") == 2

    def _look_up(self, credential: bytes) -> LookupResult:
        if credential == _NOTHING:
            return self._open_access()
        text = credential.decode("latin-1")
        return self._key_caller(text) if api_keys.is_key(text) else self._token_caller(text)

    def _open_access(self) -> LookupResult:
        """Returns the open caller until the first key is made; on loopback only."""
        with acting(self._database, OPEN.tenant) as tx:
            if store.any_key(tx) or tenants.is_erased(tx, OPEN.tenant):
                return LookupResult(None)
            return LookupResult(replace(OPEN, **tenants.terms(tx, OPEN.tenant)._asdict()))

    def _key_caller(self, key: str) -> LookupResult:
        with self._database.begin() as tx:
            row = store.find(tx, api_keys.hash_key(key))
            if row is None:
                return LookupResult(None)
            tenant, key_id = row.tenant_id, ids.show("key", row.id)
            act(tx, tenant)
            terms = tenants.terms(tx, tenant, key_id)
            if row.is_use_due:
                store.record_use(tx, row.id)
        scopes = ROLES[row.role].intersection(row.scopes)
        ends_s = inf if row.left_s is None else clock.monotonic() + row.left_s
        return LookupResult(Caller(tenant, row.role, scopes, key_id, **terms._asdict()), ends_s)

    def _token_caller(self, token: str) -> LookupResult:
        claims = self._tokens.read(token) if self._tokens else None
        if claims is None:
            return LookupResult(None)
        tenant, actor = claims.tenant, f"oidc:{claims.subject}"
        with acting(self._database, tenant) as tx:
            if tenants.is_erased(tx, tenant):  # its provider may go on to name it
                return LookupResult(None)
            terms = tenants.terms(tx, tenant)
        ends_s = clock.monotonic() + claims.ends - clock.now().timestamp()
        caller = Caller(tenant, claims.role, claims.scopes, actor, **terms._asdict())
        return LookupResult(caller, ends_s)


def _is_token(credential: bytes) -> bool:
    """Returns True if its lookup may have to fetch the provider's keys, which can be slow."""
    return bool(credential) and not credential.startswith(b"mk_")


def _credential(headers: Headers) -> bytes:
    """Raises Unauthenticated where there is none, more than one, or one that is too long."""
    credential = None
    for name, value in headers:
        if name in _HEADERS:
            if credential is not None or len(value) > _MAX_BYTES:
                raise Unauthenticated(_NOT_VALID)
            credential = _bearer(value) if name == b"authorization" else value
    if credential is None:
        raise Unauthenticated(_MISSING)
    return credential


def _bearer(value: bytes) -> bytes:
    scheme, _, credential = value.partition(b" ")
    if scheme.lower() != b"bearer":
        raise Unauthenticated(_NOT_VALID)
    return credential.strip()
