"""Source and target of a job, checked against what its tenant may access."""

from typing import Any

from api.schemas.jobs import JobInput, JobOutput
from api.services.resources import Resources
from jobs import ids
from jobs.blobs import s3_locations
from jobs.errors import Fault, Untransferable
from jobs.identity import Caller
from jobs.intake.formats import TABLES, stored_format
from jobs.store.jobs import files


def source_of(
    resources: Resources, caller: Caller, requested: JobInput, faults: list[Fault]
) -> dict[str, Any]:
    """Returns the job's source as it is stored; problems are added to `faults`."""
    source = requested.model_dump(exclude_none=True, exclude_defaults=True)
    for url in filter(None, (requested.url, *requested.urls)):
        loc = ("input", "url" if requested.url else "urls")
        _check(resources, caller, url, loc, faults, folder=url.endswith("/"))
    name = requested.url
    if requested.file:
        name = _filename(resources, caller, requested.file, faults)
    if not name or name.endswith("/"):
        return source  # of several objects, each has what its name says
    format, compression = stored_format(name)
    source = {"format": format, "compression": compression} | source
    if source.get("id_column") and not source.get("column") and source["format"] not in TABLES:
        message = "name the column of the inputs too: objects have no order of columns"
        faults.append(Fault(("input", "column"), "missing", message))
    return source


def target_of(
    resources: Resources, caller: Caller, requested: JobOutput | None, faults: list[Fault]
) -> dict[str, Any] | None:
    """Returns the job's target as it is stored; problems are added to `faults`."""
    if requested is None:
        return None
    if requested.url:
        _check(resources, caller, requested.url, ("output", "url"), faults, folder=True)
    return requested.model_dump(exclude_none=True, exclude={"files"} if requested.url else {"url"})


def _filename(resources: Resources, caller: Caller, file: str, faults: list[Fault]) -> str:
    id = ids.parse("file", file)
    with resources.acting(caller.tenant) as tx:
        row = files.get(tx, caller.tenant, id) if id else None
    if row is None:
        faults.append(Fault(("input", "file"), "no_such_file", f"there is no file {file}"))
        return ""
    return str(row.filename)


def _check(
    resources: Resources, caller: Caller, url: str, loc: tuple[str, str], faults: list[Fault],
    *, folder: bool,
) -> None:  # fmt: skip
    settings = resources.settings
    try:
        location = s3_locations.parse(url)
        if folder:
            location = location.below("")
        elif not location.key:
            raise ValueError(f"{url!r} names no object; write s3://bucket/key")
        s3_locations.check(location, caller.tenant, settings.s3_allow, settings.blobs)
    except ValueError as error:
        faults.append(Fault(loc, "url", str(error)))
    except Untransferable as error:
        faults.append(Fault(loc, error.how, error.detail))
