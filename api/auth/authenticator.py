"""Who sent a request, by its credential alone: an API key, a token of an identity provider, or
nothing on loopback as long as no key was made."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from math import inf

from api.auth.cache import CredentialCache, Found
from api.auth.invalidation import listen
from api.auth.oidc import TokenVerifier
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
_MOST_BYTES = 8192
_KEY_BYTES = 46
_NOTHING = b""
_HEADERS = frozenset((b"authorization", b"x-api-key"))
_OUR_NAMES = frozenset(name.encode() for name in LOOPBACK)

_MISSING = "no credential came; send a key: `Authorization: Bearer mk_…`"
_FROM_ELSEWHERE = (
    "without a key nobody is served but who asks loopback by its own name (127.0.0.1, localhost), "
    "and no page of another site; `millrace keys create` makes a key"
)
_NOT_VALID = "the key or token is unknown, or not valid any more; `millrace keys create` makes one"

Headers = Iterable[tuple[bytes, bytes]]


class Authenticator:
    """Every method belongs to the event loop."""

    def __init__(self, settings: Settings) -> None:
        # Connections of its own: requests that keep all others busy keep nobody out.
        self._database = db.connect(
            settings.database_url, _CONNECTIONS, statement_timeout_s=_STATEMENT_S, role=db.API
        )
        self._url = settings.database_url
        self._tokens = TokenVerifier(settings) if settings.oidc_issuer else None
        self._may_be_open = settings.host in LOOPBACK and not self._tokens
        self._recognized = CredentialCache(self._find, apart=_is_token)
        self._listening: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._listening = asyncio.create_task(listen(self._url, self.forget))

    async def stop(self) -> None:
        if self._listening:
            self._listening.cancel()
            await asyncio.wait({self._listening})
        self._recognized.stop()
        self._database.dispose()

    def forget(self, tenant: str) -> None:
        """What is remembered of a tenant, or of all (''), is looked up again before it counts."""
        self._recognized.forget(tenant)
        self._recognized.forget(OPEN.tenant)  # whoever's a key is, it may be the first

    async def authenticate(self, headers: Headers) -> Caller:
        """Raises Unauthenticated; Unavailable, and the store's errors, where that can't be told."""
        if self._may_be_open:
            if caller := await self._recognized.of(_NOTHING, _NOTHING):
                _refuse_other_sites(headers)
                return caller
            self._may_be_open = False
        credential = _credential(headers)
        if not self._is_one(credential):
            raise Unauthenticated(_NOT_VALID)
        found = await self._recognized.of(sha256(credential).digest(), credential)
        if found is None:
            raise Unauthenticated(_NOT_VALID)
        return found

    def _is_one(self, credential: bytes) -> bool:
        """Whether it looks like one: what doesn't is not looked up."""
        if credential.startswith(b"mk_"):
            return len(credential) == _KEY_BYTES
        return self._tokens is not None and credential.count(b".") == 2

    def _find(self, credential: bytes) -> Found:
        if credential == _NOTHING:
            return self._everybody()
        text = credential.decode("latin-1")
        return self._holder(text) if api_keys.is_key(text) else self._subject(text)

    def _everybody(self) -> Found:
        """On loopback, until the first key is made."""
        with acting(self._database, OPEN.tenant) as tx:
            if store.any_key(tx) or tenants.is_erased(tx, OPEN.tenant):
                return Found(None)
            return Found(replace(OPEN, **tenants.terms(tx, OPEN.tenant)._asdict()))

    def _holder(self, key: str) -> Found:
        with self._database.begin() as tx:
            row = store.find(tx, api_keys.hash_of(key))
            if row is None:
                return Found(None)
            tenant, shown = row.tenant_id, ids.show("key", row.id)
            act(tx, tenant)
            terms = tenants.terms(tx, tenant, shown)
            if row.is_use_due:
                store.record_use(tx, row.id)
        scopes = ROLES[row.role].intersection(row.scopes)
        ends_s = inf if row.left_s is None else clock.monotonic() + row.left_s
        return Found(Caller(tenant, row.role, scopes, shown, **terms._asdict()), ends_s)

    def _subject(self, token: str) -> Found:
        said = self._tokens.read(token) if self._tokens else None
        if said is None:
            return Found(None)
        with acting(self._database, said.tenant) as tx:
            if tenants.is_erased(tx, said.tenant):  # its provider may go on to name it
                return Found(None)
            terms = tenants.terms(tx, said.tenant)
        actor = f"oidc:{said.subject}"
        ends_s = clock.monotonic() + said.ends - clock.now().timestamp()
        return Found(Caller(said.tenant, said.role, said.scopes, actor, **terms._asdict()), ends_s)


def _is_token(credential: bytes) -> bool:
    """Then its provider may be asked for keys, and take its time."""
    return bool(credential) and not credential.startswith(b"mk_")


def _refuse_other_sites(headers: Headers) -> None:
    """Raises Unauthenticated. Where no credential is needed, whatever page a browser shows could
    ask in its user's place: across sites, or under a name of its own that leads to loopback."""
    for name, value in headers:
        if name == b"host":
            ours = _host(value) in _OUR_NAMES
        elif name == b"origin":
            ours = _host(value.partition(b"://")[2]) in _OUR_NAMES
        else:
            ours = name != b"sec-fetch-site" or value != b"cross-site"
        if not ours:
            raise Unauthenticated(_FROM_ELSEWHERE)


def _host(authority: bytes) -> bytes:
    """Without its port."""
    if authority.startswith(b"["):
        return authority[1:].partition(b"]")[0]
    return authority.partition(b":")[0].lower()


def _credential(headers: Headers) -> bytes:
    """Raises Unauthenticated where there is none, more than one, or one of absurd length."""
    found = None
    for name, value in headers:
        if name in _HEADERS:
            if found is not None or len(value) > _MOST_BYTES:
                raise Unauthenticated(_NOT_VALID)
            found = _bearer(value) if name == b"authorization" else value
    if found is None:
        raise Unauthenticated(_MISSING)
    return found


def _bearer(value: bytes) -> bytes:
    scheme, _, credential = value.partition(b" ")
    if scheme.lower() != b"bearer":
        raise Unauthenticated(_NOT_VALID)
    return credential.strip()
