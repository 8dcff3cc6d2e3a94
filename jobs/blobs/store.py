"""Where blobs are kept: the protocol, and the store that a setting names."""

from pathlib import Path
from typing import IO, Protocol


class BlobStore(Protocol):
    """Bytes by key. A key is made of segments of [0-9a-z-], with slashes between them.

    All raise BlobsAway where the store can't be reached or refuses: trying again may help.
    """

    def put(self, key: str, data: bytes) -> None:
        """Stores, durably once it returns; what stood there before is replaced, at once."""

    def get(self, key: str) -> bytes:
        """All of it. Raises PayloadLost where the store is there and the blob is not."""

    def put_stream(self, key: str, source: IO[bytes]) -> None:
        """As `put`, from where a file stands to its end, in constant memory."""

    def open(self, key: str) -> IO[bytes]:
        """To read in constant memory; to be closed. Raises PayloadLost at once where it is not
        there; reading raises BlobsAway."""

    def delete(self, key: str) -> None:
        """Deletes one; not there: nothing."""

    def delete_prefix(self, prefix: str) -> None:
        """Deletes every blob below a prefix, which ends with a slash; none there: nothing."""


def parse(url: str) -> Path | tuple[str, str]:
    """`file:/path` as a Path, `s3://bucket/prefix` as (bucket, prefix); raises ValueError with
    what is wrong."""
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
    """The store of a URL that `parse` takes. s3_endpoint: of an S3 that is not Amazon's."""
    found = parse(url)
    if isinstance(found, Path):
        from jobs.blobs.folder import FolderBlobs

        return FolderBlobs(found)
    from jobs.blobs.s3 import S3Blobs  # boto3 takes a third of a second to load

    return S3Blobs(*found, endpoint=s3_endpoint)
