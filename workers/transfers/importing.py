"""Imports: the items of a job, from its source through its dialect into rows that are stored in one
transaction or not at all."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from io import BufferedReader
from itertools import chain, islice
from typing import IO, Any, cast

import orjson
from psycopg.errors import UniqueViolation

from jobs import ids
from jobs.blobs import s3_locations
from jobs.blobs.s3_locations import S3Location
from jobs.dialects import dialect
from jobs.errors import Fault, Invalid, PayloadCorrupt, Untransferable
from jobs.intake.formats import stored_format
from jobs.intake.free_space import DiskFloor
from jobs.intake.spool import Intake
from jobs.models.model import Model
from jobs.store.jobs import files as file_rows
from jobs.store.jobs import insert, transfers
from jobs.store.jobs.insert import JobItems, NewJob
from jobs.store.jobs.read import JobRow
from jobs.store.jobs.transfers import Transfer
from jobs.store.queue import finish
from jobs.store.tenancy import acting
from jobs.store.tenants import limits
from jobs.telemetry.metrics import record
from jobs.usecases.slice_versions import slice_versions
from jobs.usecases.submit import pinned_model
from millrace.inputs.files import is_part
from millrace.inputs.readers import Part, Table
from workers.transfers.context import ClaimLost, TransferContext
from workers.transfers.readers import Bounds, Observed, SourceFile, SourceLines

_MIB = 1 << 20
_MOST_OBJECTS = 10_000  # of one job
_MOST_LISTED = 100_000  # below a folder, with those that aren't read


def run(context: TransferContext, transfer: Transfer, job: JobRow) -> None:
    """Queues the job with the items of its source.

    Raises ClaimLost, Invalid or Untransferable where another try wouldn't help, and errors where it
    may.
    """
    with closing(_Import(context, transfer, job)) as one:
        taken = one.read_items()
        new_job = one.new_job(taken)
        try:
            with acting(context.database, transfer.tenant) as tx:
                insert.queue_job(tx, new_job, one.items(new_job, taken))
                if not transfers.finish(tx, transfer):
                    raise ClaimLost
        except UniqueViolation as error:  # another process stored the items
            raise ClaimLost from error
        record.job_submitted(new_job.model.key, new_job.job_class, taken.total)


def fail(context: TransferContext, transfer: Transfer, error: dict[str, Any]) -> None:
    """Ends the job with an error. Raises ClaimLost."""
    with acting(context.database, transfer.tenant) as tx:
        if not transfers.finish(tx, transfer):
            raise ClaimLost
        finish.close_unread(tx, transfer.job_id, "failed", orjson.dumps(error).decode())


class _Import:
    """One try of an import.

    Payloads that it stored stay even if it fails: another try may have stored the same. They belong
    to the job and are deleted with it.
    """

    def __init__(self, context: TransferContext, transfer: Transfer, job: JobRow) -> None:
        self._context, self._transfer, self._job = context, transfer, job
        self._options: dict[str, Any] = orjson.loads(job.asked or "{}")
        self._models = context.models.of_tenant(transfer.tenant)
        self._strict = self._options.get("on_invalid", "reject") == "reject"
        self._model: Model | None = None
        self._intakes: list[Intake] = []
        self._floor = DiskFloor.from_settings(context.settings)
        with acting(context.database, transfer.tenant) as tx:
            tenant_limits = limits.get(tx, transfer.tenant)
        self._limits = [limit for limit in tenant_limits if limit.key in ("", job.key_id)]

    def read_items(self) -> Intake:
        """Reads the source into an intake."""
        settings = self._context.settings
        bounds = Bounds(
            line_bytes=self._context.models.max_line_bytes,
            document_bytes=settings.max_json_mb * _MIB,
            total_bytes=min(settings.max_ndjson_mb, settings.max_spool_mb) * _MIB,
            floor=self._floor,
        )
        source = orjson.loads(self._job.source or "{}")
        lines = self._lines = SourceLines(self._files(source), bounds, self._strict)
        return dialect(self._job.dialect).read_items(self._open_intake, lines, self._options)

    def _open_intake(self, name: str) -> Intake:
        job = self._job
        if job.versioning == "routed" and "@" in name:
            message = pinned_model(name)
            raise Invalid(message, faults=[Fault(("versioning",), "pinned_model", message)])
        self._model = self._models.resolve(
            name or f"{job.model}@{job.version}", self._transfer.tenant
        )
        taken = Intake(
            self._transfer.job_id,
            self._transfer.tenant,
            self._model,
            strict=self._strict,
            max_items=self._context.settings.max_items,
            max_bytes=self._context.settings.max_spool_mb * _MIB,
            floor=self._floor,
            limits=self._limits,
            payloads=self._context.payloads,
            place=self._lines.place,
        )
        taken.keep()
        self._intakes.append(taken)
        return taken

    def items(self, job: NewJob, taken: Intake) -> JobItems:
        """Returns the job's items, cut into slices."""
        versions = slice_versions(self._models, job, taken.bounds)
        return JobItems(taken.rows, taken.bounds, taken.inputs, versions)

    def new_job(self, taken: Intake) -> NewJob:
        """Describes the job with its items."""
        assert self._model is not None
        job = self._job
        return NewJob(
            id=job.id,
            tenant=job.tenant_id,
            model=self._model,
            job_class=job.job_class,
            priority=job.priority,
            versioning=job.versioning,
            params=job.params,
            metadata=job.metadata,
            name=job.name,
            labels=job.labels,
            custom_ids=taken.custom_ids,
            expires_in_s=job.expires_in_s,
            webhook_url=job.webhook_url,
            input_bytes=taken.input_bytes,
            limits=tuple(self._limits),
            key=job.key_id,
        )

    def close(self) -> None:
        """Drops the intakes' files."""
        for taken in self._intakes:
            taken.close()

    def _files(self, source: Mapping[str, Any]) -> Iterator[SourceFile]:
        if "file" in source:
            found = [source["file"]]
        else:
            urls = source.get("urls") or [source.get("url", "")]
            found = [*islice(chain.from_iterable(map(self._objects, urls)), _MOST_OBJECTS + 1)]
        if len(found) > _MOST_OBJECTS:
            message = f"the input has more than {_MOST_OBJECTS:,} objects: split it into jobs"
            raise Untransferable("too_many", message)
        columns = source.get("column", ""), source.get("id_column", "")
        for name in found:
            format, compression = stored_format(name)
            shown = name if len(found) > 1 else ""
            yield SourceFile(
                Part(shown, source.get("format", format)),
                Table(shown or "the input", *columns),
                source.get("compression", compression) == "gzip",
                partial(self._open, name),
            )

    def _objects(self, url: str) -> list[str]:
        """Returns the URLs of the objects that a URL stands for, those of a folder by key."""
        place = self._checked(url)
        if not url.endswith("/"):
            return [url]
        listed = [*islice(self._context.objects.entries(place), _MOST_LISTED + 1)]
        if len(listed) > _MOST_LISTED:
            message = f"{url} has more than {_MOST_LISTED:,} objects: name a folder of fewer"
            raise Untransferable("too_many", message)
        its = [key for key, size in listed if size and is_part(key.removeprefix(place.key))]
        found = [replace(place, key=key) for key in its]
        found = [one for one in found if not s3_locations.is_own(one, self._context.settings.blobs)]
        if not found:
            message = f"no object below {url} has items: put some there, then retry the job"
            raise Untransferable("no_such_object", message)
        shown = sorted(map(str, found))
        for name in shown:
            try:
                s3_locations.parse(name)
            except ValueError as error:
                message = f"{name[:200]!r}: {error}; rename it, then retry the job"
                raise Untransferable("bad_request", message) from error
        return shown

    @contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        """Opens an object by its URL, or a file of the tenant by its id."""
        if not name.startswith(s3_locations.SCHEME):
            with self._file(name) as raw:
                yield raw
            return
        with self._context.objects.open(self._checked(name)) as raw:
            yield raw

    def _checked(self, url: str) -> S3Location:
        settings = self._context.settings
        place = s3_locations.parse(url)
        s3_locations.check(place, self._transfer.tenant, settings.s3_allow, settings.blobs)
        return place

    def _file(self, shown: str) -> IO[bytes]:
        id = ids.parse("file", shown)
        with acting(self._context.database, self._transfer.tenant) as tx:
            row = file_rows.get(tx, self._transfer.tenant, id) if id else None
        if row is None:
            message = f"there is no file {shown}: it was deleted, or has expired"
            raise Untransferable("no_such_file", message)
        raw = Observed(self._context.files.open(row.key), _verifier(bytes(row.sha256)))
        return cast(IO[bytes], BufferedReader(raw, _MIB))


def _verifier(digest: bytes) -> Callable[[bytes], None]:
    """Returns an observer of a file's chunks, which raises PayloadCorrupt at the end if the file
    has another digest."""
    computed = hashlib.sha256()

    def verify(chunk: bytes) -> None:
        """Counts a chunk in, or checks the whole."""
        computed.update(chunk)
        if not chunk and computed.digest() != digest:
            raise PayloadCorrupt("the file is not what was handed in: hand it in once more")

    return verify
