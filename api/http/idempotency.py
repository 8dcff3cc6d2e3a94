"""Idempotency-Key on its way in: read from the request, and at work in this process once at most.

PostgreSQL ensures that a key makes one job (`jobs.store.jobs.idempotency`), Redis that it makes one
call (`api.gateway.response_cache`). `Uploads` spares a second request its upload and validation.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

from fastapi import Request

from api.http import bodies
from jobs import clock
from jobs.errors import IdempotencyKeyInFlight, IdempotencyKeyMissing, Malformed
from jobs.intake.idempotency_key import MAX_LENGTH, PATTERN, Claim, parse_key

REPLAYED = {"Idempotency-Replayed": "true"}
_SILENT_S = 10.0

PARAMETER: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Chosen by the client for one request and its retries: quoted as RFC 9651 has "
    f"it, or bare; at most {MAX_LENGTH} characters. The same request again gets the stored answer "
    "(with `Idempotency-Replayed: true`), or 409 while the first has none yet; another one, 422.",
    "schema": {"type": "string", "pattern": PATTERN},
}
REPLAY_DOC: dict[str, Any] = {
    "headers": {
        "Idempotency-Replayed": {
            "description": "on an answer that was given before under this Idempotency-Key",
            "schema": {"type": "string", "enum": ["true"]},
        }
    }
}


def read_key(request: Request, required: bool) -> str | None:
    """The request's key. Raises IdempotencyKeyMissing, Malformed."""
    fields = request.headers.getlist("idempotency-key")
    if len(fields) > 1:
        raise Malformed(f"there are {len(fields)} Idempotency-Key headers; send one")
    if fields:
        return parse_key(fields[0])
    if required:
        raise IdempotencyKeyMissing(
            "send an Idempotency-Key of your own choice, for example a UUID"
        )
    return None


class Upload:
    """A request under a key, while it comes in."""

    def __init__(self, request: Request, tenant: str, key: str) -> None:
        self.name = (tenant, key)
        # What makes a request the same: its media type, its query, its body.
        self._hash = hashlib.sha256(f"{bodies.kind(request)}\n{request.url.query}\n".encode())
        self._heard_s = clock.monotonic()

    def add(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        self._heard_s = clock.monotonic()

    def finish(self) -> Claim:
        """The body is here; from now on it takes as long as it takes."""
        self._heard_s = inf
        return Claim(*self.name, fingerprint=self._hash.digest())

    def silent(self) -> bool:
        return clock.monotonic() - self._heard_s > _SILENT_S


class Uploads:
    """The uploads that this process is receiving or working on.

    One that went silent no longer counts: its client may have gone without a word, and be the one
    that tries again now.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Upload] = {}

    @contextmanager
    def alone(self, upload: Upload) -> Iterator[None]:
        """Raises IdempotencyKeyInFlight where another upload with this key is at work."""
        other = self._open.get(upload.name)
        if other and not other.silent():
            raise IdempotencyKeyInFlight
        self._open[upload.name] = upload
        try:
            yield
        finally:
            if self._open.get(upload.name) is upload:
                del self._open[upload.name]
