"""OpenAI's files: upload, list, get, content, delete."""

from collections.abc import Generator
from os import SEEK_END
from typing import IO, Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from api.auth import audit
from api.compat.openai.schemas import ERRORS, PURPOSES, ExpiresAfter, File, FileDeleted, FileList
from api.context import Context, ContextDep
from api.dependencies import Reader, Submitter, Uploader, reads_on
from api.http import bodies, multipart, ranges
from api.http.authorized_stream import AuthorizedStream
from api.http.errors import faults_of
from api.http.multipart import Form
from api.http.responses import json_response
from api.routes.jobs.lookup import is_retry
from api.schemas.common import NO_NUL
from api.services.resources import Resources
from jobs import ids
from jobs.errors import Fault, Invalid, NotFound
from jobs.identity import Caller
from jobs.intake.free_space import DiskFloor
from jobs.store.db import Tx
from jobs.store.jobs import files as store
from jobs.store.jobs.files import FileRow
from jobs.usecases import tenant_files

router = APIRouter(tags=["openai"], responses=ERRORS)
PATH = "/v1/files"
PREFIX = "file"

FILE_ID = ids.pattern("file")
FileId = Annotated[str, Path(description="file_…", max_length=200)]

_OCTETS = "application/octet-stream"
_BYTES: dict[str, Any] = {_OCTETS: {"schema": {"type": "string"}}}
_MIB = 1 << 20
_CHUNK = 1 << 20
_MAX_FILENAME = 1024  # characters: a list names 10,000 of them
_BATCH_FILES_S = 30 * 86_400  #: Lifetime of a file for a batch that names none, as OpenAI's.

_FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            multipart.FORM: {
                "example": {
                    "file": "the lines of requests.jsonl",
                    "purpose": "batch",
                    "expires_after[anchor]": "created_at",
                    "expires_after[seconds]": 86400,
                },
                "schema": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["file", "purpose"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "purpose": {"type": "string", "enum": list(PURPOSES)},
                        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
                        "expires_after[seconds]": {
                            "type": "integer",
                            "minimum": 3600,
                            "maximum": 2_592_000,
                        },
                    },
                    "dependentRequired": {
                        "expires_after[anchor]": ["expires_after[seconds]"],
                        "expires_after[seconds]": ["expires_after[anchor]"],
                    },
                },
            }
        },
    }
}


@router.post(PATH, response_model=File, openapi_extra=_FORM)
async def create_file(request: Request, context: ContextDep, caller: Uploader) -> Response:
    """Stores a file, streamed, whatever its size. With the purpose `batch` it is kept for 30 days,
    unless `expires_after` says otherwise; others until they are deleted."""
    meter = context.upload_meter.begin(caller)
    async with multipart.read(request, context.settings.max_file_mb * _MIB, meter) as form:
        options = *_upload_options(form), is_retry(request)
        if bodies.is_large(form.file):
            return await context.ingest_pool.run(caller.tenant, _store, form.file, caller, *options)
        async with context.submission_turns.place(caller.tenant):
            return await run_in_threadpool(_store, context, form.file, caller, *options)


def _upload_options(form: Form) -> tuple[str, str, float | None]:
    """Returns filename, purpose, and seconds until the file expires. Raises Invalid."""
    faults = []
    fields = dict(form.fields)
    if form.filename is None:
        message = "send the file as a part that has a filename"
        faults.append(Fault(("file",), "missing", message))
    elif len(form.filename) > _MAX_FILENAME:
        message = f"the filename has {len(form.filename)} characters, {_MAX_FILENAME} at most"
        faults.append(Fault(("file",), "too_long", message))
    purpose = fields.pop("purpose", None)
    if purpose not in PURPOSES:
        message = f"the purpose is {purpose!r}; it is one of {', '.join(PURPOSES)}"
        code = "missing" if purpose is None else "invalid_value"
        faults.append(Fault(("purpose",), code, message))
    expires_in_s: float | None = _BATCH_FILES_S if purpose == "batch" else None
    if expiry := _expiry(fields):
        try:
            expires_in_s = ExpiresAfter.model_validate(expiry).seconds
        except ValidationError as error:
            faults += faults_of(error.errors(include_url=False), ("expires_after",))
    faults += [
        Fault((name,), "unknown_parameter", f"a file has no {name!r}")
        for name in fields
        if name != "expires_after" and not name.startswith("expires_after[")
    ]
    if faults:
        raise Invalid("; ".join(fault.message for fault in faults), faults=faults)
    return form.filename or "", str(purpose), expires_in_s


def _expiry(fields: dict[str, str]) -> Any:
    """Returns `expires_after`, sent as JSON or field by field; {} where there is none."""
    if "expires_after" in fields:
        try:
            return orjson.loads(fields["expires_after"])
        except orjson.JSONDecodeError:
            return fields["expires_after"]
    nested = {name: value for name, value in fields.items() if name.startswith("expires_after[")}
    return {name[len("expires_after[") :].rstrip("]"): value for name, value in nested.items()}


def _store(
    resources: Resources, content: IO[bytes], caller: Caller, filename: str, purpose: str,
    expires_in_s: float | None, retries: bool,
) -> Response:  # fmt: skip
    DiskFloor.from_settings(resources.settings).check(content.seek(0, SEEK_END))
    row = tenant_files.add(
        resources.database,
        tenant_files.blob_store(resources.settings),
        caller.tenant,
        content,
        purpose=purpose,
        filename=filename,
        expires_in_s=expires_in_s,
        limits=caller.limits,
        key_id=caller.key_id,
        retries=retries,
    )
    return json_response(file_object(row))


@router.get(PATH, response_model=FileList)
def list_files(
    context: ContextDep,
    caller: Reader,
    purpose: Annotated[str | None, Query(max_length=200, pattern=NO_NUL)] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
    order: Literal["asc", "desc"] = "desc",
    after: Annotated[
        str | None, Query(description="the last id of the page before", pattern=FILE_ID)
    ] = None,
) -> Response:
    """Lists files, newest first, unless `order` is `asc`."""
    with context.acting(caller.tenant) as tx:
        rows = store.page(
            tx,
            caller.tenant,
            purpose=purpose,
            after=ids.parse(PREFIX, after) if after else None,
            limit=limit + 1,
            newest=order == "desc",
        )
    return json_response(page_object([file_object(row) for row in rows], limit))


@router.get(PATH + "/{file_id}", response_model=File)
def get_file(context: ContextDep, caller: Reader, file_id: FileId) -> Response:
    """Returns the file object."""
    return json_response(file_object(_file(context, caller, file_id)))


@router.head(PATH + "/{file_id}/content", include_in_schema=False)
@router.get(
    PATH + "/{file_id}/content",
    response_class=StreamingResponse,
    responses={
        200: {"content": _BYTES, "description": "its bytes"},
        206: {"content": _BYTES, "description": "the bytes of a range"},
        304: {"description": "the bytes are those of If-None-Match"},
    },
)
def get_content(request: Request, context: ContextDep, caller: Reader, file_id: FileId) -> Response:
    """Streams the file's bytes, or those of a single Range (RFC 9110), by which a broken download
    goes on. The ETag is the SHA-256 of all of them; If-Range and If-None-Match compare it."""
    row = _file(context, caller, file_id)
    tag = ranges.entity_tag(row.sha256)
    headers = {"Accept-Ranges": "bytes", "ETag": tag}
    if ranges.is_known(request.headers, tag):
        return Response(status_code=304, headers=headers)
    part = ranges.requested_range(request.headers, row.bytes, tag)
    start, length = (part.start, part.length) if part else (0, row.bytes)
    headers["Content-Length"] = str(length)
    if part:
        headers["Content-Range"] = part.content_range
    status = 206 if part else 200
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers, media_type=_OCTETS)
    content = tenant_files.blob_store(context.settings).open(row.key, start)
    return AuthorizedStream(
        context.turns.pieces(caller.tenant, _pieces(content, length)),
        reads_on(request, context, caller.tenant),
        status_code=status,
        headers=headers,
        media_type=_OCTETS,
    )


@router.delete(PATH + "/{file_id}", response_model=FileDeleted)
def delete_file(
    request: Request, context: ContextDep, caller: Submitter, file_id: FileId
) -> Response:
    """Deletes a file at once, and its bytes soon after. A batch that has not read it yet fails,
    with the reason."""
    id = ids.parse(PREFIX, file_id)
    with context.acting(caller.tenant) as tx:
        if id is None or not store.delete(tx, caller.tenant, id):
            raise no_such_file(file_id)
        audit.record(tx, request, caller, "file.delete", file_id)
    return json_response({"id": file_id, "object": "file", "deleted": True})


def _file(context: Context, caller: Caller, file_id: str) -> FileRow:
    with context.acting(caller.tenant) as tx:
        return find(tx, caller, file_id)


def find(tx: Tx, caller: Caller, file_id: str) -> FileRow:
    """Returns the row of the caller's file. Raises NotFound."""
    id = ids.parse(PREFIX, file_id)
    row = store.get(tx, caller.tenant, id) if id else None
    if row is None:
        raise no_such_file(file_id)
    return row


def no_such_file(file_id: str) -> NotFound:
    """Returns the error for an unknown or expired file."""
    return NotFound(f"there is no file {file_id!r}, or it has expired")


def file_object(row: FileRow) -> dict[str, Any]:
    """Returns the file object of a row. OpenAI's type lacks the purpose `evals`."""
    expires = {"expires_at": int(row.expires_at.timestamp())} if row.expires_at else {}
    return {
        "id": ids.show(PREFIX, row.id),
        "object": "file",
        "bytes": row.bytes,
        "created_at": int(row.created_at.timestamp()),
        **expires,
        "filename": row.filename,
        "purpose": "user_data" if row.purpose == "evals" else row.purpose,
        "status": "processed",
    }


def page_object(objects: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    """Returns a page; one object more than `limit` means that there is another page."""
    data = objects[:limit]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else "",
        "last_id": data[-1]["id"] if data else "",
        "has_more": len(objects) > limit,
    }


def _pieces(content: IO[bytes], length: int) -> Generator[bytes, None, None]:
    with content:
        while length and (piece := content.read(min(_CHUNK, length))):
            length -= len(piece)
            yield piece
