"""Objects in S3 that tenants name, as inputs and outputs of their jobs.

Errors that a retry may end are BlobStoreUnavailable, others Untransferable, with what to mend.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any

from botocore.exceptions import ClientError, NoCredentialsError, ParamValidationError

from jobs.blobs.s3 import S3Blobs
from jobs.blobs.s3_locations import S3Location
from jobs.errors import BlobStoreUnavailable, PayloadLost, Untransferable

_MEND: Mapping[str, tuple[str, str]] = {
    "NoSuchBucket": ("no_such_bucket", "there is no bucket of that name: make it, or mend the URL"),
    "AccessDenied": (
        "access_denied",
        "S3 refuses it, or there is no such object and the credentials may not list the bucket: "
        "allow the platform's credentials to read there, or to write",
    ),
    "AllAccessDisabled": ("access_denied", "S3 refuses it: the account is not in order"),
    "InvalidAccessKeyId": ("bad_credentials", "S3 does not know the platform's AWS_ACCESS_KEY_ID"),
    "SignatureDoesNotMatch": (
        "bad_credentials",
        "the platform's AWS_SECRET_ACCESS_KEY is not that of its AWS_ACCESS_KEY_ID",
    ),
    "ExpiredToken": ("bad_credentials", "the platform's AWS_SESSION_TOKEN has expired"),
    "InvalidToken": ("bad_credentials", "the platform's AWS_SESSION_TOKEN is not valid"),
    "PermanentRedirect": ("wrong_region", "the bucket is in another region: set AWS_REGION"),
    "InvalidObjectState": ("archived", "the object is archived: restore it first"),
    "KMS.NotFoundException": ("no_such_key", "there is no such KMS key"),
    "KMS.DisabledException": ("no_such_key", "the KMS key is disabled"),
}
_REFUSED = "bad_request", "S3 refuses it: mend what it says"
_TRANSIENT = {408, 409, 425, 429}  # of those below 500
_TRANSIENT_CODES = {
    "BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody", "InvalidPart", "NoSuchUpload",
    "RequestTimeout", "RequestTimeTooSkewed",
}  # fmt: skip
"""Transient codes: an incomplete body, a wrong digest, an upload that another process ended."""


class Objects:
    """Objects of the S3 at this endpoint; "": Amazon's."""

    def __init__(self, endpoint: str = "") -> None:
        self._endpoint = endpoint

    def open(self, place: S3Location) -> IO[bytes]:
        """Opens an object, to be read in constant memory; reading raises BlobStoreUnavailable."""
        with translate_s3_errors(place):
            return self._bucket(place).open(place.key)

    def put_stream(
        self, place: S3Location, source: IO[bytes], encryption: Mapping[str, Any]
    ) -> None:
        """Stores an object from a file's position to its end; S3 checks the SHA-256 of every part.

        encryption: sse ("AES256" or "aws:kms") and kms_key, or nothing.
        """
        asked = {}
        if sse := encryption.get("sse"):
            asked["ServerSideEncryption"] = sse
        if key := encryption.get("kms_key"):
            asked["SSEKMSKeyId"] = key
        with translate_s3_errors(place):
            self._bucket(place).put_stream(place.key, source, asked)

    def entries(self, folder: S3Location) -> Iterator[tuple[str, int]]:
        """Yields key and bytes of the objects below a folder. Raises BlobStoreUnavailable."""
        with translate_s3_errors(folder):
            yield from self._bucket(folder).entries(folder.key)

    def discard(self, place: S3Location) -> None:
        """Deletes an object, if the store can be reached."""
        with suppress(BlobStoreUnavailable):
            self._bucket(place).delete(place.key)

    def _bucket(self, place: S3Location) -> S3Blobs:
        return S3Blobs(place.bucket, endpoint=self._endpoint)


@contextmanager
def translate_s3_errors(place: S3Location) -> Iterator[None]:
    """Raises Untransferable in place of errors that no retry ends."""
    try:
        yield
    except PayloadLost:
        message = f"there is no object {place}: put it there, or mend the URL; then retry the job"
        raise Untransferable("no_such_object", message) from None
    except BlobStoreUnavailable as error:
        if mend := _mend(error.__cause__):
            code, what = mend
            message = f"{place}: {what}; then retry the job ({error.detail})"
            raise Untransferable(code, message) from error
        raise


def _mend(cause: BaseException | None) -> tuple[str, str] | None:
    if isinstance(cause, NoCredentialsError):
        return "bad_credentials", "the platform has no credentials for S3: set AWS_ACCESS_KEY_ID"
    if isinstance(cause, ParamValidationError):
        return "bad_request", "S3 can't be asked that"
    if not isinstance(cause, ClientError):
        return None
    code = str(cause.response.get("Error", {}).get("Code", ""))
    status = int(cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500))
    if code in _TRANSIENT_CODES or status in _TRANSIENT or not 300 <= status < 500:
        return None
    refused = _MEND["AccessDenied"] if status in (401, 403) else _REFUSED
    return _MEND.get(code, refused)
