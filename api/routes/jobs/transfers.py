"""`input` and `output` of a job, as they are stored: checked against what its tenant may name."""

from typing import Any

from api.schemas.jobs import JobInput, JobOutput
from api.services.resources import Resources
from jobs import ids
from jobs.blobs import s3_locations
from jobs.errors import Fault, Untransferable
from jobs.identity import Caller
from jobs.store.jobs import files

_FORMATS = {".csv": "csv", ".parquet": "parquet"}


def source_of(
    shared: Resources, caller: Caller, asked: JobInput, faults: list[Fault]
) -> dict[str, Any]:
    """The job's source; what is wrong is added to the faults."""
    if asked.file:
        name = _filename(shared, caller, asked.file, faults)
        found = {"file": asked.file}
    else:
        name = asked.url
        found = {"url": asked.url}
        _check(shared, caller, asked.url, ("input", "url"), faults, folder=False)
    name, packed = name.lower().removesuffix(".gz"), name.lower().endswith(".gz")
    guessed = next((form for suffix, form in _FORMATS.items() if name.endswith(suffix)), "jsonl")
    return {
        **found,
        "format": asked.format or guessed,
        "compression": asked.compression or ("gzip" if packed else "none"),
    }


def target_of(
    shared: Resources, caller: Caller, asked: JobOutput | None, faults: list[Fault]
) -> dict[str, Any] | None:
    """The job's target; what is wrong is added to the faults."""
    if asked is None:
        return None
    if asked.url:
        _check(shared, caller, asked.url, ("output", "url"), faults, folder=True)
    return asked.model_dump(exclude_none=True, exclude={"files"} if asked.url else {"url"})


def _filename(shared: Resources, caller: Caller, file: str, faults: list[Fault]) -> str:
    id = ids.parse("file", file)
    with shared.acting(caller.tenant) as tx:
        row = files.get(tx, caller.tenant, id) if id else None
    if row is None:
        faults.append(Fault(("input", "file"), "no_such_file", f"there is no file {file}"))
        return ""
    return str(row.filename)


def _check(
    shared: Resources, caller: Caller, url: str, loc: tuple[str, str], faults: list[Fault],
    *, folder: bool,
) -> None:  # fmt: skip
    settings = shared.settings
    try:
        place = s3_locations.parse(url)
        if folder:
            place = place.below("")
        elif not place.key or place.key.endswith("/"):
            raise ValueError(f"{url!r} names no object; write s3://bucket/key")
        s3_locations.check(place, caller.tenant, settings.s3_allow, settings.blobs)
    except ValueError as error:
        faults.append(Fault(loc, "url", str(error)))
    except Untransferable as error:
        faults.append(Fault(loc, error.how, error.detail))
