"""Who is signed in: a cookie that holds the credential, sealed. It is recognized anew for every
request, so what ends the credential ends the session; nothing is stored here."""

import base64
import binascii
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Literal

import orjson
from starlette.responses import Response

from jobs import clock, encryption
from jobs.errors import Malformed, NotConfigured
from jobs.identity import Caller
from jobs.settings import Settings

LASTS_S = 12 * 3600.0
COOKIE = "millrace_session"
PATH = "/dashboard"
MOST_COOKIE = 4000
"""Bytes that every browser keeps of one."""

_OWNER = "dashboard session"
_NO_KEY = secrets.token_hex(32)
"""Of this process, for the forms of installations that are open and have no secret key."""


@dataclass(frozen=True, slots=True)
class Session:
    """id: at random; ends: Unix time. actor, role: as they were at sign-in."""

    id: str
    credential: str
    actor: str
    role: str
    ends: float


def new_id() -> str:
    return secrets.token_urlsafe(16)


def begin(credential: str, caller: Caller) -> Session:
    ends = clock.now().timestamp() + LASTS_S
    return Session(new_id(), credential, caller.actor, caller.role, ends)


def of(cookies: Mapping[str, str], settings: Settings) -> Session | None:
    """The session that a request's cookies hold, until its end; None: none that is good."""
    said = unsealed(cookies.get(COOKIE, ""), settings, _OWNER)
    try:
        session = Session(**said) if said else None
    except TypeError:  # of another release
        return None
    return session if session and session.ends > clock.now().timestamp() else None


def is_of(session: Session, caller: Caller) -> bool:
    """Whether the credential still stands for the one who signed in."""
    return (session.actor, session.role) == (caller.actor, caller.role)


def keep(response: Response, session: Session, settings: Settings, https: bool) -> None:
    """https: whether the browser came by it. Raises Malformed where the credential is too long for
    a cookie."""
    set_cookie(response, COOKIE, sealed(asdict(session), settings, _OWNER), LASTS_S, https)


def end(response: Response, https: bool) -> None:
    set_cookie(response, COOKIE, "", 0, https)


def is_https(headers: Mapping[str, str], settings: Settings) -> bool:
    """Whether the browser came by https: to us, or to the proxy in front of us."""
    return settings.tls_cert is not None or headers.get("x-forwarded-proto") == "https"


def form_token(id: str, settings: Settings) -> str:
    """What a form must carry to be taken: nobody else can tell it. id: of the session."""
    key = (settings.secret_key or _NO_KEY).encode()
    return hmac.new(key, f"dashboard form {id}".encode(), sha256).hexdigest()


def same_token(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def sealed(said: Mapping[str, Any], settings: Settings, owner: str) -> str:
    """For a cookie. Raises NotConfigured without a secret key."""
    if not settings.secret_key:
        raise NotConfigured(
            "signing in needs MILLRACE_SECRET_KEY, the same for every api; "
            "`openssl rand -base64 32` makes one"
        )
    text = orjson.dumps(said).decode()
    raw = encryption.encrypt(settings.secret_key, owner, text)
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")  # which a cookie would quote


def unsealed(cookie: str, settings: Settings, owner: str) -> dict[str, Any] | None:
    """What was sealed; None: nothing, or nothing of ours."""
    if not cookie or not settings.secret_key:
        return None
    try:
        padded = cookie + "=" * (-len(cookie) % 4)
        raw = base64.b64decode(padded, altchars=b"-_", validate=True)
        text = encryption.decrypt(settings.secret_key, owner, raw)
    except (encryption.DecryptionError, binascii.Error, ValueError):
        return None
    found: dict[str, Any] = orjson.loads(text)
    return found


def set_cookie(
    response: Response, name: str, value: str, lasts_s: float, https: bool,
    samesite: Literal["strict", "lax"] = "strict",
) -> None:  # fmt: skip
    """For the pages alone, and no script. lasts_s: 0: it is taken away."""
    if len(value) > MOST_COOKIE:
        raise Malformed("this token is too long for a browser's cookie; use an API key")
    response.set_cookie(
        name,
        value,
        max_age=int(lasts_s),
        path=PATH,
        secure=https,
        httponly=True,
        samesite=samesite,
    )
