"""What stands out, in words: the diagnoses that `millrace why` gives too."""

from collections.abc import Iterable
from typing import Annotated

from fastapi import Depends

from api.context import ContextDep
from api.dashboard.auth.viewer import Somebody
from jobs.explain import Diagnosis
from jobs.explain.diagnosis import visible_to_tenants


async def _causes(shared: ContextDep, viewer: Somebody) -> list[Diagnosis]:
    found = await shared.diagnostics.diagnoses()
    return found if viewer.may("operate") else visible_to_tenants(found)


Causes = Annotated[list[Diagnosis], Depends(_causes)]
"""All that the viewer may know of, the most severe first."""


def about(found: Iterable[Diagnosis], subject: str) -> list[Diagnosis]:
    """Those about that (`model:m@1`)."""
    return [one for one in found if one.about == subject]
