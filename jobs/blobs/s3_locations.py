"""Locations in S3 for inputs and outputs of jobs, and which of them a tenant may use.

They are reached with the platform's own credentials, so only those of MILLRACE_S3_ALLOW are
allowed, and never the platform's own blobs.
"""

import re
from dataclasses import dataclass

from jobs.errors import Untransferable

SCHEME = "s3://"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_UNFIT = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")
_MOST_KEY_BYTES = 1024
_TENANT = "{tenant}"


@dataclass(frozen=True, slots=True)
class S3Location:
    """Object, or a prefix of objects."""

    bucket: str
    key: str  #: a prefix where it is empty or ends with a slash

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}"

    def below(self, name: str) -> "S3Location":
        """Returns the location of a name in this folder."""
        folder = self.key if self.key.endswith("/") or not self.key else f"{self.key}/"
        return S3Location(self.bucket, folder + name)


def parse(url: str) -> S3Location:
    """Reads s3://bucket/key. Raises ValueError."""
    if not url.startswith(SCHEME):
        raise ValueError(f"{url[:100]!r} does not begin with s3://")
    bucket, _, key = url.removeprefix(SCHEME).partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(f"{bucket[:100]!r} is no name of a bucket; write s3://bucket/key")
    if found := _UNFIT.search(key):
        raise ValueError(f"the key has {found[0]!r} in it")
    if len(key.encode()) > _MOST_KEY_BYTES:
        raise ValueError(f"the key is longer than {_MOST_KEY_BYTES} bytes")
    # S3 takes them literally; a compatible store may take them for the parent folder.
    if {".", ".."} & set(key.split("/")):
        raise ValueError("the key has . or .. in it")
    return S3Location(bucket, key)


def patterns(allow: str) -> list[tuple[str, str]]:
    """Returns (bucket, prefix) of each entry of the setting. Raises ValueError."""
    found = []
    for entry in filter(None, map(str.strip, allow.split(","))):
        bucket, _, prefix = entry.removeprefix(SCHEME).partition("/")
        if not _BUCKET.fullmatch(bucket.replace(_TENANT, "tenant")):
            raise ValueError(f"{entry!r} is no bucket and no bucket/prefix")
        if {".", ".."} & set(prefix.split("/")):
            raise ValueError(f"{entry!r} has . or .. in it")
        found.append((bucket, prefix.strip("/")))
    return found


def check(place: S3Location, tenant: str, allow: str, blobs: str = "") -> None:
    """Raises Untransferable where this tenant may not use a location.

    allow: MILLRACE_S3_ALLOW. blobs: MILLRACE_BLOBS.
    """
    if not allow:
        raise Untransferable(
            "not_allowed",
            f"jobs may not reach {place}: no place in S3 is allowed here. An administrator allows "
            "some by MILLRACE_S3_ALLOW, for example MILLRACE_S3_ALLOW=bucket/{tenant}",
        )
    if is_own(place, blobs) or not any(
        _within(place, bucket.replace(_TENANT, tenant), prefix.replace(_TENANT, tenant))
        for bucket, prefix in patterns(allow)
    ):
        raise Untransferable(
            "not_allowed",
            f"jobs of {tenant} may not reach {place}; an administrator allows places in S3 by "
            "MILLRACE_S3_ALLOW",
        )


def is_own(place: S3Location, blobs: str) -> bool:
    """Returns True for a location among the platform's own blobs. blobs: MILLRACE_BLOBS."""
    if not blobs.startswith(SCHEME):
        return False
    own = parse(blobs)
    return _within(place, own.bucket, own.key.strip("/"))


def _within(place: S3Location, bucket: str, prefix: str) -> bool:
    return place.bucket == bucket and (not prefix or place.key.startswith(prefix + "/"))
