"""Routes: the shares of a model's calls that its versions answer."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from jobs.models.routing.bucket import BUCKETS, bucket_of, caller_of, random_bucket

Sticky = Literal["", "tenant", "user"]
"""Callers that stay with their version: each tenant, each user of a tenant; "": nobody."""

ALL_TENANTS = "*"

_PER_PERCENT = BUCKETS // 100


def bucket_for(sticky: Sticky, salt: str, tenant: str, user: str, key: str) -> int:
    """Returns the bucket of a call. user: as its client named it. key: its Idempotency-Key, by
    which a call goes that nothing else decides, and so does a retry; "": by chance."""
    if sticky == "tenant":
        return bucket_of(salt, tenant)
    if sticky == "user" and user:
        return bucket_of(salt, tenant, user)
    return bucket_of(salt, tenant, f"\0{key}") if key else random_bucket()


def caller_for(sticky: Sticky, salt: str, tenant: str, user: str) -> str:
    """Returns what stands for the caller of a call in records; "": it isn't a sticky one."""
    if sticky == "tenant":
        return caller_of(salt, tenant)
    return caller_of(salt, tenant, user) if sticky == "user" and user else ""


@dataclass(frozen=True, slots=True)
class Share:
    """Version, and its share of the calls."""

    version: str
    percent: float  #: of the calls, with at most two decimals

    @property
    def buckets(self) -> int:
        """Number of buckets."""
        return round(self.percent * _PER_PERCENT)


@dataclass(frozen=True, slots=True)
class Route:
    """Route of one model, for one tenant or for all.

    The version listed last has the buckets from 0 on, the one before it those that follow: raising
    the share of the last takes nobody back from it.
    """

    name: str  #: of the model
    splits: Sequence[Share]
    tenant: str = ALL_TENANTS
    sticky: Sticky = ""
    salt: str = ""  #: kept for as long as the route exists
    #: version that gets copies of calls, and the share of the calls that are copied
    shadow: Share | None = None

    @property
    def base(self) -> str:
        """Version that answers in place of one that isn't ready: the one listed first."""
        return self.splits[0].version

    @property
    def versions(self) -> list[str]:
        """Versions that it names, its shadow among them."""
        return [share.version for share in (*self.splits, *([self.shadow] if self.shadow else ()))]

    def version_at(self, bucket: int) -> str:
        """Returns the version that answers the calls of a bucket."""
        top = 0
        for split in reversed(self.splits):
            top += split.buckets
            if bucket < top:
                return split.version
        return self.base


def problems_of(route: Route, active: Collection[str]) -> Iterator[str]:
    """Yields what is wrong with a route. active: versions of the model that may be routed to."""
    if not route.splits:
        yield "a route names at least one version with its percent, as in 1=95 2=5"
        return
    for version, count in Counter(split.version for split in route.splits).items():
        if count > 1:
            yield f"version {version!r} is named {count} times: give it one percent"
    shares = [*route.splits, *([route.shadow] if route.shadow else ())]
    for share in shares:
        if (
            not 0 <= share.percent <= 100
            or abs(share.percent * _PER_PERCENT - share.buckets) > 1e-6
        ):
            yield (
                f"version {share.version!r} has {share.percent:g} percent: it must be a number "
                "from 0 to 100 with at most two decimals"
            )
    if sum(split.buckets for split in route.splits) != BUCKETS:
        total = sum(split.percent for split in route.splits)
        yield f"the percents of the versions make {total:g}: they must make 100"
    for version in dict.fromkeys(share.version for share in shares):
        if version not in active:
            known = ", ".join(sorted(active)) or "none"
            yield (
                f"{route.name!r} has no active version {version!r}; there are: {known}. Declare it "
                "first, or route to another"
            )
    if route.shadow and all(route.shadow.version == split.version for split in route.splits):
        yield f"the shadow {route.shadow.version!r} answers all calls itself: name another version"
