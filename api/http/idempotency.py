"""Idempotency-Key of requests, which runs in this process once at most at a time.

PostgreSQL ensures that a key makes one job (`jobs.store.jobs.idempotency`), Redis that it makes
one call (`api.gateway.response_cache`). `Uploads` saves a second request its upload and
validation.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from api.http import bodies
from jobs import clock
from jobs.errors import Fault, IdempotencyKeyInFlight, IdempotencyKeyMissing, Invalid, Malformed
from jobs.intake.idempotency_key import MAX_LENGTH, PATTERN, Claim, parse_key

REPLAYED = {"Idempotency-Replayed": "true"}
_SILENT_S = 10.0

PARAMETER: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Chosen by the client for one request and its retries: quoted (RFC 9651) or "
    f"bare; at most {MAX_LENGTH} characters. A repeated request gets the stored response (with "
    "`Idempotency-Replayed: true`), or 409 while the first is running; a different request, 422.",
    "schema": {"type": "string", "pattern": PATTERN},
}
REPLAY_HEADER_DOC: dict[str, Any] = {
    "headers": {
        "Idempotency-Replayed": {
            "description": "present on the stored response of this Idempotency-Key",
            "schema": {"type": "string", "enum": ["true"]},
        }
    }
}


def request_doc(schema: str) -> dict[str, Any]:
    """Returns OpenAPI's description of a request under an Idempotency-Key whose handler parses the
    body, an object of this schema."""
    return {"parameters": [PARAMETER], **body_doc(schema)}


def body_doc(schema: str) -> dict[str, Any]:
    """Returns OpenAPI's description of a body that the handler parses, an object of this schema."""
    body = {"schema": {"$ref": f"#/components/schemas/{schema}"}}
    return {"requestBody": {"required": True, "content": {bodies.JSON: body}}}


def read_key(request: Request, required: bool) -> str | None:
    """Returns the request's key. Raises IdempotencyKeyMissing, Malformed."""
    fields = [value for name, value in request.scope["headers"] if name == b"idempotency-key"]
    if len(fields) > 1:
        raise Malformed(f"there are {len(fields)} Idempotency-Key headers; send one")
    if fields:
        return parse_key(fields[0].decode("latin-1"))
    if required:
        raise missing()
    return None


def missing() -> IdempotencyKeyMissing:
    """Returns the error of a request without a key where one is required."""
    return IdempotencyKeyMissing("send an Idempotency-Key of your own choice, for example a UUID")


def refuse_for_stream(key: str | None) -> None:
    """Raises Invalid where a request for a stream has a key: no stream is kept to be sent again."""
    if key is not None:
        message = "a stream has no Idempotency-Key: leave out the header, or `stream`"
        raise Invalid(message, faults=[Fault(("stream",), "idempotency_key", message)])


class Upload:
    """Request under a key, while its body comes in."""

    def __init__(self, request: Request, tenant: str, key: str) -> None:
        self.name = (tenant, key)
        # Equal requests have the same route, media type, query and body. The route that came first
        # isn't named: its keys of earlier releases stay valid.
        route = "" if request.url.path == "/jobs" else request.url.path
        self._hash = hashlib.sha256(
            f"{route}{bodies.content_type(request)}\n{request.url.query}\n".encode()
        )
        self._last_chunk_s = clock.monotonic()

    def add(self, chunk: bytes) -> None:
        """Adds a chunk of the body to the fingerprint."""
        self._hash.update(chunk)
        self._last_chunk_s = clock.monotonic()

    def finish(self) -> Claim:
        """Ends the upload; it no longer counts as silent, however long the work takes."""
        self._last_chunk_s = inf
        return Claim(*self.name, fingerprint=self._hash.digest())

    def silent(self) -> bool:
        """Returns True if no chunk came for a while."""
        return clock.monotonic() - self._last_chunk_s > _SILENT_S


async def claim_of(request: Request, tenant: str, key: str, *parts: bytes) -> Claim:
    """Returns the claim of a request whose body is in memory."""
    upload = Upload(request, tenant, key)
    for part in parts:
        if len(part) > bodies.LIGHT_BYTES:
            await run_in_threadpool(upload.add, part)
        else:
            upload.add(part)
    return upload.finish()


class Uploads:
    """Uploads that this process receives or works on.

    A silent one no longer counts: its client may be gone, and may be the one that tries again now.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Upload] = {}

    @contextmanager
    def alone(self, upload: Upload) -> Iterator[None]:
        """Registers an upload for the block.

        Raises IdempotencyKeyInFlight where another one has this key.
        """
        other = self._open.get(upload.name)
        if other and not other.silent():
            raise IdempotencyKeyInFlight
        self._open[upload.name] = upload
        try:
            yield
        finally:
            if self._open.get(upload.name) is upload:
                del self._open[upload.name]
