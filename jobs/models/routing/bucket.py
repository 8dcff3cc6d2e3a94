"""Buckets of tenants and users, by which shares of a model's calls are cut."""

from hashlib import sha256

from jobs import clock

BUCKETS = 10_000
"""Buckets of a split: a share may have two decimals of a percent."""
_BITS = 64
_CALLER_BYTES = 6


def bucket_of(salt: str, tenant: str, user: str = "") -> int:
    """Returns the bucket, 0 to BUCKETS - 1, of a tenant or of one of its users: for one salt always
    the same, and independent of that for another."""
    return int.from_bytes(_digest(salt, tenant, user)[: _BITS // 8]) * BUCKETS >> _BITS


def caller_of(salt: str, tenant: str, user: str = "") -> str:
    """Returns 12 hexadecimal digits that stand for a tenant or one of its users: they don't tell
    who it is, and are independent of its bucket."""
    return _digest(salt, tenant, user)[_BITS // 8 :][:_CALLER_BYTES].hex()


def _digest(salt: str, tenant: str, user: str) -> bytes:
    return sha256(f"{salt}\0{tenant}\0{user}".encode("utf-8", "replace")).digest()


def random_bucket() -> int:
    """Returns a bucket by chance."""
    return min(BUCKETS - 1, int(clock.jitter(BUCKETS)))
