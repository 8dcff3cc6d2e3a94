"""Workloads in Kubernetes that are pools: MILLRACE_SCALE_WORKLOADS."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

_NAME = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
_ENTRY = re.compile(
    rf"(?P<pool>[^=,]+)=(?P<namespace>{_NAME})/(?P<kind>deployment|statefulset)/(?P<name>{_NAME})"
)


@dataclass(frozen=True, slots=True)
class Workload:
    """Deployment or StatefulSet whose pods are the workers of a pool."""

    namespace: str
    kind: Literal["deployment", "statefulset"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name} in {self.namespace}"


def parse(text: str) -> Mapping[str, Workload]:
    """Returns the workload of each pool, from `pool=namespace/kind/name,…`. Raises ValueError."""
    found = dict[str, Workload]()
    for entry in filter(None, (part.strip() for part in text.split(","))):
        if not (match := _ENTRY.fullmatch(entry)):
            raise ValueError(
                f"{entry!r} is none: write pool=namespace/deployment/name, or "
                "pool=namespace/statefulset/name"
            )
        workload = Workload(match["namespace"], match["kind"], match["name"])  # type: ignore[arg-type]
        if match["pool"] in found or workload in found.values():
            raise ValueError(f"{entry!r}: a pool has one workload, and a workload is of one pool")
        found[match["pool"]] = workload
    return found
