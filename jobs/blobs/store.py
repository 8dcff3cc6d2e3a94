"""Blob stores: the protocol, and the store that a setting names."""

from pathlib import Path
from typing import IO, Protocol


class BlobStore(Protocol):
    """Bytes by key. A key is made of segments of [0-9a-z-], with slashes between them.

    All methods raise BlobStoreUnavailable where the store can't be reached or refuses.
    """

    range_bytes: int  #: length of ranges that are copied fast

    def put(self, key: str, data: bytes) -> None:
        """Stores a blob durably; replaces an earlier one atomically."""

    def get(self, key: str) -> bytes:
        """Returns a blob. Raises PayloadLost where the store is there and the blob is not."""

    def put_stream(self, key: str, source: IO[bytes]) -> None:
        """Stores a blob from a file's position to its end, in constant memory."""

    def open(self, key: str, start: int = 0) -> IO[bytes]:
        """Opens a blob, to be read from a byte on in constant memory, and closed. Raises
        PayloadLost.

        Reading raises BlobStoreUnavailable.
        """

    def size(self, key: str) -> int | None:
        """Returns the bytes of a blob; None: it isn't there."""

    def copy_range(self, key: str, start: int, length: int, descriptor: int) -> int:
        """Writes so many bytes of a blob into a file, from a position on and in order, at the same
        position; returns how many there were. Raises PayloadLost."""

    def delete(self, key: str) -> None:
        """Deletes a blob, if it is there."""

    def delete_prefix(self, prefix: str) -> None:
        """Deletes all blobs below a prefix, which ends with a slash."""


def parse(url: str) -> Path | tuple[str, str]:
    """Reads `file:/path` as a Path, `s3://bucket/prefix` as (bucket, prefix). Raises ValueError."""
    scheme, colon, rest = url.partition(":")
    if colon and scheme == "file":
        path = Path("/" + rest.lstrip("/") if rest.startswith("/") else rest).expanduser()
        if path.is_absolute():
            return path
        raise ValueError(f"{rest!r} is not an absolute path; write file:/path")
    bucket, _, prefix = rest.removeprefix("//").partition("/")
    if colon and scheme == "s3" and rest.startswith("//") and bucket:
        return bucket, prefix.strip("/")
    raise ValueError(f"{url!r} is neither file:/path nor s3://bucket/prefix")


def open_store(url: str, s3_endpoint: str = "") -> BlobStore:
    """Opens the store of a URL. s3_endpoint: of an S3-compatible store that is not Amazon's."""
    found = parse(url)
    if isinstance(found, Path):
        from jobs.blobs.folder import FolderBlobs

        return FolderBlobs(found)
    from jobs.blobs.s3 import S3Blobs  # boto3 takes a third of a second to load

    return S3Blobs(*found, endpoint=s3_endpoint)
