"""Beginning of a generation request, by which calls that share it find the same worker."""

from hashlib import blake2b

_BYTES = 512  # of JSON; a shorter beginning costs less than a detour
_STARTS = b'"messages":', b'"prompt":'


def prefix_digest(tenant: str, adapter: str, raw: bytes) -> str | None:
    """Returns a digest of what a cached beginning is shared by: tenant, adapter (its name, or "")
    and the beginning of a prompt or conversation; None where that is short. raw: the request as
    JSON without spaces, as it is stored with its call."""
    start = max(map(raw.find, _STARTS))
    beginning = raw[start : start + _BYTES]
    if start < 0 or len(beginning) < _BYTES:
        return None
    shared = f"{tenant}\0{adapter}\0".encode()
    return blake2b(shared + beginning, digest_size=8).hexdigest()
