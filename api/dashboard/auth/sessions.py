"""Sessions: an encrypted cookie that holds the credential.

The credential is verified on every request, so its end ends the session; the server stores only
the ids of sessions that were signed out of.
"""

import base64
import binascii
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal

import orjson
from sqlalchemy import Engine as Database
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.context import Context
from jobs import clock
from jobs.errors import Malformed, NotConfigured
from jobs.identity import Caller
from jobs.security import encryption
from jobs.settings import Settings
from jobs.store.tenants import ended_sessions

MAX_AGE_S = 12 * 3600.0
COOKIE = "millrace_session"
PATH = "/dashboard"
MAX_COOKIE = 4000  # bytes that every browser accepts

_OWNER = "dashboard session"
_NO_KEY = secrets.token_hex(32)
"""Key of this process for forms, where authentication is off and no secret key is set."""


@dataclass(frozen=True, slots=True)
class Session:
    """Session of a viewer."""

    id: str  #: random
    credential: str
    actor: str  #: at sign-in
    role: str  #: at sign-in
    ends: float  #: Unix time, s


def new_id() -> str:
    """Returns a random id."""
    return secrets.token_urlsafe(16)


def begin(credential: str, caller: Caller) -> Session:
    """Starts a session."""
    ends = clock.now().timestamp() + MAX_AGE_S
    return Session(new_id(), credential, caller.actor, caller.role, ends)


def from_cookies(cookies: Mapping[str, str], settings: Settings) -> Session | None:
    """Returns the session of a request's cookies; None if there is no valid one."""
    fields = unsealed(cookies.get(COOKIE, ""), settings, _OWNER)
    try:
        session = Session(**fields) if fields else None
    except TypeError:  # of another release
        return None
    return session if session and session.ends > clock.now().timestamp() else None


async def end(cookies: Mapping[str, str], context: Context) -> None:
    """Ends the session of a request's cookies, if there is one: copies of them end too."""
    if session := from_cookies(cookies, context.settings):
        ends_at = datetime.fromtimestamp(session.ends, UTC)
        await run_in_threadpool(_store_end, context.database, session.id, ends_at)


def _store_end(database: Database, id: str, ends_at: datetime) -> None:
    with database.begin() as tx:
        ended_sessions.add(tx, id, ends_at)


async def has_ended(session: Session, context: Context) -> bool:
    """Returns True if the session was signed out of."""
    return await run_in_threadpool(_has_ended, context.database, session.id)


def _has_ended(database: Database, id: str) -> bool:
    with database.begin() as tx:
        return ended_sessions.has_ended(tx, id)


def matches(session: Session, caller: Caller) -> bool:
    """Returns True if the credential still belongs to the actor and role that signed in."""
    return (session.actor, session.role) == (caller.actor, caller.role)


def set_session(response: Response, session: Session, settings: Settings, https: bool) -> None:
    """Sets the session's cookie; `https`: the browser uses it. Raises Malformed where the
    credential is too long for a cookie."""
    set_cookie(response, COOKIE, sealed(asdict(session), settings, _OWNER), MAX_AGE_S, https)


def clear_session(response: Response, https: bool) -> None:
    """Deletes the session's cookie."""
    set_cookie(response, COOKIE, "", 0, https)


def is_https(headers: Mapping[str, str], settings: Settings) -> bool:
    """Returns True if the browser uses https, to us or to the proxy in front."""
    return settings.tls_cert is not None or headers.get("x-forwarded-proto") == "https"


def form_token(id: str, settings: Settings) -> str:
    """Returns the CSRF token of a session's forms, by the first secret key."""
    return _form_tokens(id, settings)[0]


def is_form_token(token: str, id: str, settings: Settings) -> bool:
    """Returns True for a session's CSRF token by any of the secret keys."""
    return any(_same(token, valid) for valid in _form_tokens(id, settings))


def _form_tokens(id: str, settings: Settings) -> list[str]:
    keys = encryption.keys(settings.secret_key) or (_NO_KEY,)
    message = f"dashboard form {id}".encode()
    return [hmac.new(key.encode(), message, sha256).hexdigest() for key in keys]


def _same(one: str, other: str) -> bool:
    """Compares tokens in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())


def sealed(fields: Mapping[str, Any], settings: Settings, owner: str) -> str:
    """Encrypts fields for a cookie. Raises NotConfigured without a secret key."""
    if not settings.secret_key:
        raise NotConfigured(
            "signing in needs MILLRACE_SECRET_KEY, the same for all api processes; "
            "`openssl rand -base64 32` generates one"
        )
    text = orjson.dumps(fields).decode()
    raw = encryption.encrypt(settings.secret_key, owner, text)
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")  # a cookie would quote it


def unsealed(cookie: str, settings: Settings, owner: str) -> dict[str, Any] | None:
    """Decrypts a cookie; returns None if it is empty or not ours."""
    if not cookie or not settings.secret_key:
        return None
    try:
        padded = cookie + "=" * (-len(cookie) % 4)
        raw = base64.b64decode(padded, altchars=b"-_", validate=True)
        text = encryption.decrypt(settings.secret_key, owner, raw)
    except (encryption.DecryptionError, binascii.Error, ValueError):
        return None
    fields: dict[str, Any] = orjson.loads(text)
    return fields


def set_cookie(
    response: Response, name: str, value: str, max_age_s: float, https: bool,
    samesite: Literal["strict", "lax"] = "strict",
) -> None:  # fmt: skip
    """Sets a cookie for the dashboard only, hidden from scripts; `max_age_s` 0 deletes it."""
    if len(value) > MAX_COOKIE:
        raise Malformed("this token is too long for a cookie; use an API key")
    response.set_cookie(
        name,
        value,
        max_age=int(max_age_s),
        path=PATH,
        secure=https,
        httponly=True,
        samesite=samesite,
    )
