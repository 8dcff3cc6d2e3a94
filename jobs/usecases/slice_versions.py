"""Versions under which the slices of jobs wait: of jobs that go by routes, and of models whose
preparation comes first."""

from collections.abc import Sequence

from jobs.errors import UnknownModel
from jobs.models.model import Model
from jobs.models.registry import Registry
from jobs.store.jobs.insert import NewJob


def slice_versions(models: Registry, job: NewJob, bounds: Sequence[int]) -> Sequence[str]:
    """Returns the version under which each slice of a new job waits; empty: all have the job's.

    Of a job that goes by routes it is that of a call whose key is the slice; a slice whose version
    isn't declared, or doesn't take its inputs, has the job's too. bounds: as of JobItems.
    """
    own = first_stage(job.model)
    if job.versioning == "pinned":
        return () if own == job.model.version else [own] * (len(bounds) - 1)
    able = {one.version: first_stage(one) for one in _able(models, job.model)}
    routing, name = models.routing, job.model.served_by.name
    chosen = (routing.choose(name, job.tenant, key=f"{job.id}/{start}") for start in bounds[:-1])
    return [able.get(one.version, own) if one else own for one in chosen]


def first_stage(model: Model) -> str:
    """Returns the version under which slices of a model wait at first."""
    return model.stages[0].version


def lasting(models: Registry, model: Model, tenant: str) -> tuple[Model | None, list[Model]]:
    """Returns the version that a job by this name gets now, and those that slices may wait for.

    models: those that take new jobs. model: version that the job was accepted for. None: no version
    takes its inputs. Where nothing routes the name any declared version may be waited for.
    """
    able = _able(models, model)
    if not able:
        return None, able
    usual = models.resolve(model.name, tenant).version
    to = next((one for one in able if one.version == usual), None)
    routed = models.routing.versions(model.served_by.name, tenant)
    return to, [one for one in able if one.version in routed] if routed else able


def _able(models: Registry, model: Model) -> list[Model]:
    """Returns the declared versions that take a version's inputs."""
    try:
        declared = models.versions(model.name)
    except UnknownModel:
        return []
    return [one for one in declared if one.takes_inputs_of(model)]
