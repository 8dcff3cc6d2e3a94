"""Blobs in S3, or in a compatible store.

Credentials and region come from boto3's own chain: AWS_* variables, profile, role.
"""

import base64
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from hashlib import sha256
from io import BufferedReader, BytesIO, RawIOBase
from types import MappingProxyType
from typing import IO, Any, cast

import boto3
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    IncompleteReadError,
    ReadTimeoutError,
    ResponseStreamingError,
)

from jobs.blobs.ranges import write_at
from jobs.errors import BlobStoreUnavailable, PayloadLost

_log = logging.getLogger(__name__)
_PART_BYTES = 8 << 20
_READ_BYTES = 1 << 20
_PARTS = 4  # of a range, at a time
_TRIES = 3  # of reading an object: botocore itself tries again only until its first byte


@cache
def _connect(endpoint: str) -> Any:
    """Returns a thread-safe client; making one takes a good part of a second."""
    session = boto3.Session()
    return session.client(
        "s3",
        endpoint_url=endpoint or None,
        region_name=session.region_name or "us-east-1",
        config=Config(
            retries={"mode": "standard", "max_attempts": 4},
            connect_timeout=5,
            read_timeout=30,
            max_pool_connections=32,
            tcp_keepalive=True,
            # Downloads are checked against their references.
            response_checksum_validation="when_required",
            s3={"addressing_style": "path" if endpoint else "auto"},
        ),
    )


class S3Blobs:
    """Stores each blob as an object; S3 checks its SHA-256, large ones are uploaded in parts."""

    range_bytes = _PARTS * _PART_BYTES

    def __init__(self, bucket: str, prefix: str = "", *, endpoint: str = "") -> None:
        self._bucket, self._prefix = bucket, prefix and prefix + "/"
        self._client = _connect(endpoint)
        self._transfer = TransferConfig(
            multipart_threshold=_PART_BYTES, multipart_chunksize=_PART_BYTES, max_concurrency=4
        )

    def put(self, key: str, data: bytes) -> None:
        """Implements `BlobStore.put`."""
        place = {"Bucket": self._bucket, "Key": self._prefix + key}
        with self._away(f"can't write {key}"):
            if len(data) < _PART_BYTES:
                digest = base64.b64encode(sha256(data).digest()).decode()
                checksum = {"ChecksumAlgorithm": "SHA256", "ChecksumSHA256": digest}
                self._client.put_object(**place, **checksum, Body=data)
            else:
                self.put_stream(key, BytesIO(data))

    def put_stream(
        self, key: str, source: IO[bytes], more: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Stores a blob from a file. more: further arguments of boto3."""
        place = {"Bucket": self._bucket, "Key": self._prefix + key}
        with self._away(f"can't write {key}"):
            self._client.upload_fileobj(
                source,
                **place,
                ExtraArgs={"ChecksumAlgorithm": "SHA256", **more},
                Config=self._transfer,
            )

    def get(self, key: str) -> bytes:
        """Implements `BlobStore.get`."""
        with self.open(key) as body:
            return body.read()

    def open(self, key: str, start: int = 0) -> IO[bytes]:
        """Implements `BlobStore.open`."""
        raw = _Object(partial(self._body, key), partial(self._away, f"can't read {key}"), start)
        return cast(IO[bytes], BufferedReader(raw, _READ_BYTES))

    def _body(self, key: str, start: int) -> Any:
        """Returns the body of an object, from a byte on."""
        place = {"Bucket": self._bucket, "Key": self._prefix + key}
        rest = {"Range": f"bytes={start}-"} if start else {}
        try:
            return self._client.get_object(**place, **rest)["Body"]
        except self._client.exceptions.NoSuchKey:
            raise PayloadLost(f"the blob {key} is gone") from None

    def size(self, key: str) -> int | None:
        """Implements `BlobStore.size`."""
        place = {"Bucket": self._bucket, "Key": self._prefix + key}
        with self._away(f"can't read {key}"):
            try:
                return int(self._client.head_object(**place)["ContentLength"])
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") in ("404", "NoSuchKey"):
                    return None
                raise

    def copy_range(self, key: str, start: int, length: int, descriptor: int) -> int:
        """Implements `BlobStore.copy_range`."""
        starts = range(start, start + length, _PART_BYTES)
        lengths = (min(_PART_BYTES, start + length - at) for at in starts)
        done = start
        with ThreadPoolExecutor(_PARTS, thread_name_prefix="s3") as threads:
            for chunk in threads.map(partial(self._read_range, key), starts, lengths):
                write_at(descriptor, chunk, done)
                done += len(chunk)
        return done - start

    def _read_range(self, key: str, start: int, length: int) -> bytes:
        """Returns so many bytes from a position on, or what there is of them."""
        place = {"Bucket": self._bucket, "Key": self._prefix + key}
        with self._away(f"can't read {key}"):
            for left in reversed(range(_TRIES)):
                try:
                    return self._range(place, start, length)
                except (ReadTimeoutError, ResponseStreamingError, IncompleteReadError):
                    if not left:
                        raise
        raise AssertionError

    def _range(self, place: Mapping[str, str], start: int, length: int) -> bytes:
        asked = f"bytes={start}-{start + length - 1}"
        try:
            body = self._client.get_object(**place, Range=asked)["Body"]
        except self._client.exceptions.NoSuchKey:
            raise PayloadLost(f"the blob {place['Key']} is gone") from None
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "InvalidRange":
                return b""  # beyond its end
            raise
        with body:
            content: bytes = body.read()
            return content

    def delete(self, key: str) -> None:
        """Implements `BlobStore.delete`."""
        with self._away(f"can't delete {key}"):
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key)

    def entries(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yields key and bytes of each blob whose key begins so."""
        with self._away(f"can't list {prefix}"):
            for page in self._pages(prefix):
                yield from ((entry["Key"], entry["Size"]) for entry in page)

    def _pages(self, prefix: str) -> Iterator[list[dict[str, Any]]]:
        place = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        for page in self._client.get_paginator("list_objects_v2").paginate(**place):
            yield page.get("Contents", [])

    def delete_prefix(self, prefix: str) -> None:
        """Implements `BlobStore.delete_prefix`."""
        place = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        with self._away(f"can't delete {prefix}"):
            for page in self._pages(prefix):
                if page:
                    self._delete([{"Key": entry["Key"]} for entry in page])
            for page in self._client.get_paginator("list_multipart_uploads").paginate(**place):
                for begun in page.get("Uploads", ()):
                    self._client.abort_multipart_upload(
                        Bucket=self._bucket, Key=begun["Key"], UploadId=begun["UploadId"]
                    )

    def _delete(self, found: list[dict[str, str]]) -> None:
        asked = {"Objects": found, "Quiet": True}
        refused = self._client.delete_objects(Bucket=self._bucket, Delete=asked).get("Errors")
        if refused:
            first = refused[0]
            raise BlobStoreUnavailable(
                f"S3 keeps {len(refused)} blobs, {first['Key']}: {first['Code']}"
            )

    @contextmanager
    def _away(self, what: str) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, Boto3Error, ClientError) as error:
            what = f"{what} in s3://{self._bucket}"
            # Other texts than the server's own may name the endpoint, which is not for tenants.
            is_answer = isinstance(error, ClientError)
            why = str(error) if is_answer else f"{type(error).__name__}; the log has the reason"
            if not is_answer:
                _log.warning("%s: %s", what, error)
            raise BlobStoreUnavailable(f"{what}: {why}", retry_after_s=5) from error


class _Object(RawIOBase):
    """Object as it is read: where a connection breaks, another continues.

    body: opens the object from a byte on. away: translates errors of S3. start: first byte.
    """

    def __init__(
        self,
        body: Callable[[int], Any],
        away: Callable[[], AbstractContextManager[None]],
        start: int,
    ) -> None:
        self._open, self._away = body, away
        self._at, self._left = start, _TRIES
        with away():
            self._body = body(start)

    def readable(self) -> bool:
        """Implements `RawIOBase.readable`."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Implements `RawIOBase.readinto`."""
        with self._away():
            while True:
                try:
                    chunk = self._body.read(len(buffer))
                    break
                except (ReadTimeoutError, ResponseStreamingError, IncompleteReadError):
                    self._left -= 1
                    if not self._left:
                        raise
                    self._body = self._open(self._at)
        buffer[: len(chunk)] = chunk
        self._at += len(chunk)
        return len(chunk)

    def close(self) -> None:
        """Implements `RawIOBase.close`."""
        if not self.closed:
            self._body.close()
        super().close()
