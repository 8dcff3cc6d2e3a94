"""Findings of `millrace why` that a viewer may see."""

from collections.abc import Iterable
from typing import Annotated

from fastapi import Depends

from api.context import ContextDep
from api.dashboard.auth.viewer import Somebody
from jobs.explain import Diagnosis
from jobs.explain.diagnosis import visible_to_tenants


async def _causes(context: ContextDep, viewer: Somebody) -> list[Diagnosis]:
    diagnoses = await context.diagnostics.diagnoses()
    return diagnoses if viewer.may("operate") else visible_to_tenants(diagnoses)


Causes = Annotated[list[Diagnosis], Depends(_causes)]
"""Findings that the viewer may see, most severe first."""


def of_subject(diagnoses: Iterable[Diagnosis], subject: str) -> list[Diagnosis]:
    """Returns the findings about a subject (`model:m@1`)."""
    return [one for one in diagnoses if one.about == subject]
