"""Exports: the results of a job that has ended, part by part to a disk, then to files or S3."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import fields
from io import BytesIO
from operator import attrgetter
from typing import Any
from uuid import UUID

import orjson

from jobs import ids
from jobs.blobs import s3_locations
from jobs.dialects import dialect
from jobs.errors import BlobStoreUnavailable, Conflict, Untransferable
from jobs.states import OUTCOMES
from jobs.store.db import Tx
from jobs.store.jobs import files as file_rows
from jobs.store.jobs import read, transfers
from jobs.store.jobs.read import JobRow, ResultRow
from jobs.store.jobs.transfers import Transfer
from jobs.store.tenancy import acting
from jobs.usecases import tenant_files
from workers.transfers.context import ClaimLost, TransferContext
from workers.transfers.writers import Parts, Written

_GIVE_UP_S = 86_400.0  # after the job's end, where the target can't be reached
_MAX_PARTS = 1000  # a manifest names them all


def run(context: TransferContext, transfer: Transfer, job: JobRow) -> None:
    """Writes the results, then the manifest.

    Raises ClaimLost, Untransferable where another try wouldn't help, and errors where it may.
    """
    target: dict[str, Any] = orjson.loads(job.target or "{}")
    destination: _Destination = (_ObjectTarget if "url" in target else _FileTarget)(
        context, transfer, job, target
    )
    try:
        manifest = _write(context, job, target, destination)
        with acting(context.database, transfer.tenant) as tx:
            if not transfers.finish(tx, transfer):
                raise ClaimLost
            destination.record(tx)
            transfers.set_manifest(tx, transfer, manifest)
    except ClaimLost:
        _discard_if_changed(context, transfer, destination)
        raise
    except Conflict as error:  # retried, deleted or pruned meanwhile
        if not _discard_if_changed(context, transfer, destination):
            raise ClaimLost from error
        destination.discard()
        message = "the results were removed at the end of their retention before they were written"
        raise Untransferable("pruned", message) from None
    except Untransferable:
        destination.discard()
        raise


def fail(context: TransferContext, transfer: Transfer, error: dict[str, Any]) -> None:
    """Ends the export: the results stay in the database, the webhook says that they were not
    written. Raises ClaimLost."""
    with acting(context.database, transfer.tenant) as tx:
        if not transfers.finish(tx, transfer):
            raise ClaimLost
        transfers.set_manifest(tx, transfer, {"error": error})


def give_up(job: JobRow) -> bool:
    """Returns True if the export has been tried for long enough."""
    return bool((job.read_at - (job.finished_at or job.read_at)).total_seconds() > _GIVE_UP_S)


class _Destination:
    """Place for the parts of one export."""

    def __init__(
        self, context: TransferContext, transfer: Transfer, job: JobRow, target: Mapping[str, Any]
    ) -> None:
        self._context, self._transfer, self._job, self._target = context, transfer, job, target

    def put(self, part: Written) -> dict[str, Any]:
        """Stores a part; returns its entry of the manifest.

        Raises BlobStoreUnavailable, Untransferable.
        """
        raise NotImplementedError

    def seal(self, manifest: Mapping[str, Any]) -> None:
        """Writes the manifest where it isn't in the job's row alone; called after all parts."""

    def record(self, tx: Tx) -> None:
        """Completes the rows of the parts in the database, if they have any."""

    def discard(self) -> None:
        """Deletes what was stored."""
        raise NotImplementedError


def _write(
    context: TransferContext, job: JobRow, target: Mapping[str, Any], destination: _Destination
) -> dict[str, Any]:
    """Writes all parts and returns the manifest."""
    options = orjson.loads(job.asked or "{}") | {"model": job.model}
    unit = context.models.unit(job.model, job.version)
    if part_items := target.get("part_items"):
        target = {**target, "part_items": max(part_items, -(-job.total // _MAX_PARTS))}
    described, units, tokens = [], 0, _Tokens(unit)
    rows = context.payloads.resolve_rows(map(_as_mapping, read.result_rows(context.database, job)))
    with closing(Parts(target, dialect(job.dialect), unit, options)) as parts:
        for row in rows:
            if row["outcome"] == "succeeded":
                units += row["units"]
                tokens.add(row)
            described += [destination.put(part) for part in parts.add(row)]
        described += [destination.put(part) for part in parts.finish()]
    manifest: dict[str, Any] = {
        "job": ids.show("job", job.id),
        "generation": job.generation,
        "format": target.get("format", "jsonl"),
        "compression": target.get("compression", "none"),
        "counts": {"total": job.total, **{name: getattr(job, name) for name in OUTCOMES}},
        "usage": {unit: units},
        **tokens.as_json(),
        "parts": described,
    }
    destination.seal(manifest)
    return manifest


class _Tokens:
    """Tokens of successful items, as their lines show them. unit: of their sizes."""

    def __init__(self, unit: str) -> None:
        self._of_size = unit == "tokens"
        self._counted = self._of_size
        self._sums = dict.fromkeys(("input", "cached", "output"), 0)

    def add(self, row: Mapping[str, Any]) -> None:
        """Adds those of a result: of a size in tokens that came alone, all are its input's."""
        if row["input_tokens"] is not None:
            self._counted = True
            for name in self._sums:
                self._sums[name] += row[f"{name}_tokens"]
        elif self._of_size:
            self._sums["input"] += row["units"]

    def as_json(self) -> dict[str, Any]:
        """Their entry of the manifest; none where nothing counted any."""
        return {"tokens": self._sums} if self._counted else {}


_RESULT = tuple(field.name for field in fields(ResultRow))
_values = attrgetter(*_RESULT)


def _as_mapping(row: ResultRow) -> Mapping[str, Any]:
    return dict(zip(_RESULT, _values(row), strict=True))


def _discard_if_changed(
    context: TransferContext, transfer: Transfer, destination: _Destination
) -> bool:
    """Returns True if the job is unchanged: another process may be writing the same parts.
    Otherwise discards what was written."""
    with acting(context.database, transfer.tenant) as tx:
        unchanged = transfers.job(tx, transfer) is not None
    if not unchanged:
        destination.discard()
    return unchanged


class _FileTarget(_Destination):
    """Stores each part as a file of the tenant.

    The id derives from the job, so that another try writes to the same place. The row comes before
    the bytes, so that they are deleted whatever process dies.
    """

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        self._put: list[UUID] = []
        self._stored: list[dict[str, Any]] = []

    def put(self, part: Written) -> dict[str, Any]:
        """Stores a part."""
        job = ids.show("job", self._job.id)
        named = (job, str(self._transfer.generation), part.part, str(part.number))
        id = ids.derived(self._job.finished_at or self._job.read_at, *named)
        described = part.described()
        with self._acting() as tx:
            file_rows.reserve(
                tx, self._transfer.tenant, id, purpose="batch_output",
                filename=f"{job}_{part.part}{part.suffix}", key=tenant_files.blob_key(id),
                key_id="", within_s=tenant_files.UPLOAD_TIMEOUT_S,
            )  # fmt: skip
        self._put.append(id)
        stored = tenant_files.put(self._context.files, part.content, id)
        self._stored.append({name: stored[name] for name in ("id", "bytes", "sha256")})
        return described | {"file": ids.show("file", id)}

    def record(self, tx: Tx) -> None:
        """Completes the files' rows."""
        expires_in_s = (self._target.get("files") or {}).get("expires_in_s")
        for file in self._stored:
            row = file_rows.complete(tx, self._transfer.tenant, expires_in_s=expires_in_s, **file)
            if row is None:
                raise BlobStoreUnavailable("a file was given up while others were written")

    def discard(self) -> None:
        """Marks the files as given up."""
        with self._acting() as tx:
            for id in self._put:
                file_rows.abandon(tx, self._transfer.tenant, id)

    def _acting(self) -> AbstractContextManager[Tx]:
        return acting(self._context.database, self._transfer.tenant)


class _ObjectTarget(_Destination):
    """Stores parts as objects below a URL, in a folder of the job's generation.

    No other generation writes there; the manifest comes last and says that all parts are there.
    """

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        settings, target, job = self._context.settings, self._target, self._job
        self._objects, self._encryption = self._context.objects, target.get("encryption") or {}
        folder = s3_locations.parse(target["url"]).below(f"{ids.show('job', job.id)}/")
        self._folder = folder.below(f"{job.generation}/")
        s3_locations.check(self._folder, self._transfer.tenant, settings.s3_allow, settings.blobs)
        self._put: list[s3_locations.S3Location] = []

    def put(self, part: Written) -> dict[str, Any]:
        """Stores a part."""
        at = self._folder.below(f"{part.part}-{part.number:05}{part.suffix}")
        described = part.described() | {"url": str(at)}
        self._put.append(at)
        self._objects.put_stream(at, part.content, self._encryption)
        return described

    def seal(self, manifest: Mapping[str, Any]) -> None:
        """Writes the manifest."""
        at = self._folder.below("manifest.json")
        self._put.append(at)
        content = BytesIO(orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
        self._objects.put_stream(at, content, self._encryption)

    def discard(self) -> None:
        """Deletes the objects, the last first."""
        for at in reversed(self._put):
            self._objects.discard(at)
