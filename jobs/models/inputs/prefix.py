"""Beginning of a generation request, by which calls that share it find the same worker."""

from hashlib import blake2b

_BYTES = 512  # of JSON; a shorter beginning costs less than a detour
_STARTS = b'"messages":', b'"prompt":'
_SALT = b'"cache_salt":"'


def prefix_digest(tenant: str, adapter: str, raw: bytes) -> str | None:
    """Returns a digest of what a cached beginning is shared by: tenant, adapter (its name, or ""),
    `cache_salt`, and the beginning of a prompt or conversation; None where that is short. raw: the
    request as JSON without spaces, as it is stored with its call."""
    start = max(map(raw.find, _STARTS))
    beginning = raw[start : start + _BYTES]
    if start < 0 or len(beginning) < _BYTES:
        return None
    shared = f"{tenant}\0{adapter}\0".encode() + _salt(raw)
    return blake2b(shared + beginning, digest_size=8).hexdigest()


def _salt(raw: bytes) -> bytes:
    """Returns the salt of a request up to its first quote, escaped as it is; b"": it has none. In a
    text the quotes of the name would be escaped."""
    start = raw.find(_SALT)
    if start < 0:
        return b""
    start += len(_SALT)
    return raw[start : raw.index(b'"', start)] + b"\0"
