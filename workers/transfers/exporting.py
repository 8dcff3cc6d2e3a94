"""Writes the results of a job that has ended: part by part to a disk, from there to files or S3."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import fields
from io import BytesIO
from operator import attrgetter
from typing import Any, Protocol
from uuid import UUID

import orjson

from jobs import ids
from jobs.blobs import s3_locations
from jobs.dialects import dialect
from jobs.errors import BlobsAway, Conflict, Untransferable
from jobs.states import OUTCOMES
from jobs.store.db import Tx
from jobs.store.jobs import files as file_rows
from jobs.store.jobs import read, transfers
from jobs.store.jobs.read import JobRow, ResultRow
from jobs.store.jobs.transfers import Transfer
from jobs.store.tenancy import acting
from jobs.usecases import tenant_files
from workers.transfers.shared import NotOurs, Shared
from workers.transfers.writers import Parts, Written

PATIENCE_S = 86_400.0
"""What can't be reached for so long after the job's end is given up."""

_MOST_PARTS = 1000  # a manifest names them all
_TYPES = {".parquet": "vnd.apache.parquet"}


def export_job(shared: Shared, mine: Transfer, job: JobRow) -> None:
    """Writes the results, then what they are; or why they can't be written, where that stays so.
    Raises NotOurs, and what trying again may help."""
    target: dict[str, Any] = orjson.loads(job.target or "{}")
    place: _Destination = (_Objects if "url" in target else _Files)(shared, mine, job, target)
    try:
        manifest = _written(shared, job, target, place)
        with acting(shared.database, mine.tenant) as tx:
            if not transfers.finish(tx, mine):
                raise NotOurs
            place.record(tx)
            transfers.set_manifest(tx, mine, manifest)
    except NotOurs:
        _leave(shared, mine, place)
        raise
    except Conflict as error:  # retried, deleted or pruned meanwhile
        if not _leave(shared, mine, place):
            raise NotOurs from error
        place.discard()
        message = "the results were removed at the end of their retention before they were written"
        raise Untransferable("pruned", message) from None
    except Untransferable:
        place.discard()
        raise


def fail(shared: Shared, mine: Transfer, error: dict[str, Any]) -> None:
    """The job's results stay where they are; its webhook says that they were not written."""
    with acting(shared.database, mine.tenant) as tx:
        if not transfers.finish(tx, mine):
            raise NotOurs
        transfers.set_manifest(tx, mine, {"error": error})


def give_up(job: JobRow) -> bool:
    """Whether it has been tried for long enough."""
    return (job.read_at - (job.finished_at or job.read_at)).total_seconds() > PATIENCE_S


class _Destination(Protocol):
    def put(self, part: Written) -> dict[str, Any]:
        """Stores a part, and says what it is. Raises BlobsAway, Untransferable."""

    def seal(self, manifest: Mapping[str, Any]) -> None:
        """All parts are there."""

    def record(self, tx: Tx) -> None:
        """What the database knows of them."""

    def discard(self) -> None:
        """Nobody will know of them."""


def _written(
    shared: Shared, job: JobRow, target: Mapping[str, Any], place: _Destination
) -> dict[str, Any]:
    """The manifest."""
    words, asked = dialect(job.dialect), orjson.loads(job.asked or "{}")
    asked["model"] = job.model
    unit = shared.models.unit(job.model, job.version)
    if most := target.get("part_items"):
        target = {**target, "part_items": max(most, -(-job.total // _MOST_PARTS))}
    described, units = [], 0
    rows = shared.payloads.opened(map(_as_mapping, read.result_rows(shared.database, job)))
    with closing(Parts(target, words, unit, asked)) as parts:
        for row in rows:
            units += row["units"] if row["outcome"] == "succeeded" else 0
            described += [place.put(part) for part in parts.add(row)]
        described += [place.put(part) for part in parts.finish()]
    manifest: dict[str, Any] = {
        "job": ids.show("job", job.id),
        "generation": job.generation,
        "format": target.get("format", "jsonl"),
        "compression": target.get("compression", "none"),
        "counts": {"total": job.total, **{name: getattr(job, name) for name in OUTCOMES}},
        "usage": {unit: units},
        "parts": described,
    }
    place.seal(manifest)
    return manifest


_RESULT = tuple(field.name for field in fields(ResultRow))
_values = attrgetter(*_RESULT)


def _as_mapping(row: ResultRow) -> Mapping[str, Any]:
    return dict(zip(_RESULT, _values(row), strict=True))


def _leave(shared: Shared, mine: Transfer, place: _Destination) -> bool:
    """Whether the job is still there as it was: somebody else may be writing the very same. Where
    it isn't, what was written is nobody's."""
    with acting(shared.database, mine.tenant) as tx:
        still = transfers.job(tx, mine) is not None
    if not still:
        place.discard()
    return still


class _Files:
    """A file for each kind of lines. Its id is told from the job: whoever tries again writes to the
    same place. Its row comes before its bytes, so that they go whoever dies."""

    def __init__(
        self, shared: Shared, mine: Transfer, job: JobRow, target: Mapping[str, Any]
    ) -> None:
        self._shared, self._mine, self._job = shared, mine, job
        self._expires_in_s = (target.get("files") or {}).get("expires_in_s")
        self._put: list[UUID] = []
        self._stored: list[dict[str, Any]] = []

    def put(self, part: Written) -> dict[str, Any]:
        job = ids.show("job", self._job.id)
        named = (job, str(self._mine.generation), part.part, str(part.number))
        id = ids.derived(self._job.finished_at or self._job.read_at, *named)
        described = part.described()
        with self._acting() as tx:
            file_rows.reserve(
                tx, self._mine.tenant, id, purpose="batch_output",
                filename=f"{job}_{part.part}{part.suffix}", key=tenant_files.blob_key(id),
                key_id="", within_s=tenant_files.UPLOAD_TIMEOUT_S,
            )  # fmt: skip
        self._put.append(id)
        stored = tenant_files.put(self._shared.files, part.content, id)
        self._stored.append({name: stored[name] for name in ("id", "bytes", "sha256")})
        return described | {"file": ids.show("file", id)}

    def seal(self, manifest: Mapping[str, Any]) -> None: ...

    def record(self, tx: Tx) -> None:
        for found in self._stored:
            row = file_rows.complete(
                tx, self._mine.tenant, expires_in_s=self._expires_in_s, **found
            )
            if row is None:
                raise BlobsAway("a file was given up while others were written")

    def discard(self) -> None:
        with self._acting() as tx:
            for id in self._put:
                file_rows.abandon(tx, self._mine.tenant, id)

    def _acting(self) -> AbstractContextManager[Tx]:
        return acting(self._shared.database, self._mine.tenant)


class _Objects:
    """Objects below a URL, in a folder of the job's generation: no other one ever writes there, and
    its manifest, which comes last, says that they are all there."""

    def __init__(
        self, shared: Shared, mine: Transfer, job: JobRow, target: Mapping[str, Any]
    ) -> None:
        settings = shared.settings
        self._objects, self._encryption = shared.objects, target.get("encryption") or {}
        folder = s3_locations.parse(target["url"]).below(f"{ids.show('job', job.id)}/")
        self._folder = folder.below(f"{job.generation}/")
        s3_locations.check(self._folder, mine.tenant, settings.s3_allow, settings.blobs)
        self._put: list[s3_locations.Place] = []

    def put(self, part: Written) -> dict[str, Any]:
        at = self._folder.below(f"{part.part}-{part.number:05}{part.suffix}")
        described = part.described() | {"url": str(at)}
        self._put.append(at)
        self._objects.put_stream(at, part.content, self._encryption)
        return described

    def seal(self, manifest: Mapping[str, Any]) -> None:
        at = self._folder.below("manifest.json")
        self._put.append(at)
        content = BytesIO(orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
        self._objects.put_stream(at, content, self._encryption)

    def discard(self) -> None:
        for at in reversed(self._put):
            self._objects.discard(at)

    def record(self, tx: Tx) -> None: ...
