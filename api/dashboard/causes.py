"""What stands out, in words: the diagnoses that `millrace why` gives too."""

from collections.abc import Sequence
from typing import Any

from api.context import Context
from api.dashboard.told import Told


def of(shared: Context, told: Told, about: str = "", for_tenant: bool = False) -> Sequence[Any]:
    """The most severe first. about: only those about that (`model:m@1`); for_tenant: only those
    that say nothing of others."""
    try:
        from jobs import explain  # type: ignore[attr-defined, unused-ignore]
    except ImportError:  # until it is there
        return ()
    found = explain.diagnose(explain.Facts.of(told.reading, shared.models))
    if for_tenant:
        found = explain.told_to_tenants(found)
    return [one for one in found if not about or one.about == about]
