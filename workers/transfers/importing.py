"""Reads the items of a job: its source as lines, through its dialect, into rows that are stored in
one transaction or not at all."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader, RawIOBase
from typing import IO, Any, cast

import orjson
from psycopg.errors import UniqueViolation

from jobs import ids
from jobs.blobs import s3_locations
from jobs.dialects import dialect
from jobs.errors import PayloadCorrupt, Untransferable
from jobs.intake.spool import Intake
from jobs.limits import most_items
from jobs.models.model import Model
from jobs.store.jobs import files as file_rows
from jobs.store.jobs import insert, transfers
from jobs.store.jobs.insert import NewJob
from jobs.store.jobs.read import JobRow
from jobs.store.jobs.transfers import Transfer
from jobs.store.queue import finish
from jobs.store.tenancy import acting
from jobs.store.tenants import limits
from jobs.telemetry.metrics import record
from workers.transfers.readers import lines_of
from workers.transfers.shared import NotOurs, Shared

_MIB = 1 << 20


def import_job(shared: Shared, mine: Transfer, job: JobRow) -> None:
    """Queues the job with the items of its source; or fails it, where what is wrong stays wrong.
    Raises NotOurs, and what trying again may help."""
    taking = _Taking(shared, mine, job)
    try:
        taken = taking.take_in()
        described = taking.described(taken)
        with acting(shared.database, mine.tenant) as tx:
            insert.queue_job(tx, described, taken.rows, taken.bounds, taken.inputs)
            if not transfers.finish(tx, mine):
                raise NotOurs
        record.job_submitted(described.model.key, described.job_class, taken.total)
    except UniqueViolation as error:  # of items that another one stored
        raise NotOurs from error
    finally:
        taking.close()


def fail(shared: Shared, mine: Transfer, error: dict[str, Any]) -> None:
    """The job ends, and says why."""
    with acting(shared.database, mine.tenant) as tx:
        if not transfers.finish(tx, mine):
            raise NotOurs
        finish.close_unread(tx, mine.job_id, "failed", orjson.dumps(error).decode())


class _Taking:
    """One try. Payloads that it stored stay whatever comes of it: another one, of whom it knows
    nothing, may have stored the same. They are the job's, and go with it."""

    def __init__(self, shared: Shared, mine: Transfer, job: JobRow) -> None:
        self._shared, self._mine, self._job = shared, mine, job
        self._asked: dict[str, Any] = orjson.loads(job.asked or "{}")
        self._model: Model | None = None
        self._intakes: list[Intake] = []
        with acting(shared.database, mine.tenant) as tx:
            of_tenant = limits.get(tx, mine.tenant)
        self._limits = [limit for limit in of_tenant if limit.key in ("", job.key_id)]

    def take_in(self) -> Intake:
        source = orjson.loads(self._job.source or "{}")
        most_line = self._shared.models.max_line_bytes
        most = self._shared.settings.max_ndjson_mb * _MIB
        with self._opened(source) as raw:
            lines = lines_of(source, raw, most_line, most)
            return dialect(self._job.dialect).take_in(self._open_intake, lines, self._asked)

    def _open_intake(self, name: str) -> Intake:
        job = self._job
        self._model = self._shared.models.resolve(name or f"{job.model}@{job.version}")
        taken = Intake(
            self._mine.job_id,
            self._mine.tenant,
            self._model,
            strict=self._asked.get("on_invalid", "reject") == "reject",
            max_items=self._shared.settings.max_items,
            bound=most_items(self._limits, self._model.name),
            payloads=self._shared.payloads,
        )
        taken.keep()
        self._intakes.append(taken)
        return taken

    def described(self, taken: Intake) -> NewJob:
        assert self._model is not None
        job = self._job
        return NewJob(
            id=job.id,
            tenant=job.tenant_id,
            model=self._model,
            job_class=job.job_class,
            priority=job.priority,
            params=job.params,
            metadata=job.metadata,
            custom_ids=taken.custom_ids,
            expires_in_s=job.expires_in_s,
            webhook_url=job.webhook_url,
            input_bytes=taken.input_bytes,
            limits=tuple(self._limits),
            key=job.key_id,
        )

    def close(self) -> None:
        for taken in self._intakes:
            taken.close()

    @contextmanager
    def _opened(self, source: Mapping[str, Any]) -> Iterator[IO[bytes]]:
        settings = self._shared.settings
        if url := source.get("url"):
            place = s3_locations.parse(url)
            s3_locations.check(place, self._mine.tenant, settings.s3_allow, settings.blobs)
            with self._shared.objects.open(place) as raw:
                yield raw
            return
        with self._file(source["file"]) as raw:
            yield raw

    def _file(self, shown: str) -> IO[bytes]:
        id = ids.parse("file", shown)
        with acting(self._shared.database, self._mine.tenant) as tx:
            row = file_rows.get(tx, self._mine.tenant, id) if id else None
        if row is None:
            message = f"there is no file {shown}: it was deleted, or has expired"
            raise Untransferable("no_such_file", message)
        raw = _Checked(self._shared.files.open(row.key), bytes(row.sha256))
        return cast(IO[bytes], BufferedReader(raw, _MIB))


class _Checked(RawIOBase):
    """A file that is what was handed in: else its end raises PayloadCorrupt."""

    def __init__(self, raw: IO[bytes], digest: bytes) -> None:
        self._raw, self._digest, self._seen = raw, digest, hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._raw.read(len(buffer))
        if not chunk and self._seen.digest() != self._digest:
            raise PayloadCorrupt("the file is not what was handed in: hand it in once more")
        self._seen.update(chunk)
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        self._raw.close()
        super().close()
