"""One suite for both stores, and then what only one of them can get wrong."""

import io
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.blobs.folder import FolderBlobs
from jobs.blobs.s3 import S3Blobs
from jobs.blobs.store import BlobStore
from jobs.errors import BlobStoreUnavailable, PayloadLost
from tests.integration.jobs.blobs.conftest import BUCKET

LARGE = bytes(range(256)) * (17 << 12)  # 17 MiB: three parts


@pytest.mark.parametrize("data", [b"", b"x", b"\x00\xff\n", b"y" * 100_000, LARGE])
def test_what_is_put_comes_back(store: BlobStore, data: bytes) -> None:
    store.put("in/week/a/1", data)
    assert store.get("in/week/a/1") == data


def test_a_range_is_copied_to_its_place_as_far_as_it_goes(store: BlobStore, tmp_path: Path) -> None:
    assert store.size("a/b") is None
    store.put("a/b", LARGE)
    assert store.size("a/b") == len(LARGE)
    end = len(LARGE)
    with (tmp_path / "copy").open("w+b") as file:

        def copy(start: int, length: int) -> int:
            return store.copy_range("a/b", start, length, file.fileno())

        middle = 9 << 20
        assert copy(middle, end) == end - middle
        assert copy(0, middle) == middle
        assert copy(end, 10) == copy(end + 5, 10) == 0
        assert file.read() == LARGE
        with pytest.raises(PayloadLost):
            store.copy_range("a/c", 0, 4, file.fileno())


def test_a_second_put_replaces_the_first_and_what_is_deleted_can_return(store: BlobStore) -> None:
    store.put("a/b", b"first, and longer")
    store.put("a/b", b"second")
    assert store.get("a/b") == b"second"
    for prefix in ("never/", "a/", "a/"):  # deleting what is not there is harmless
        store.delete_prefix(prefix)
    store.put("a/b", b"y")
    assert store.get("a/b") == b"y"


def test_what_was_never_put_is_lost_and_not_away(store: BlobStore) -> None:
    store.put("a/b", b"x")
    for key in ("a/c", "c/b", "a/b2"):
        with pytest.raises(PayloadLost, match=key):
            store.get(key)


def test_a_prefix_is_deleted_with_all_below_it_and_nothing_beside_it(store: BlobStore) -> None:
    gone, kept = ["job/1", "job/2/3", "job/2/4"], ["job2/1", "jo/1", "other/job/1"]
    for key in gone + kept:
        store.put(key, key.encode())
    store.delete_prefix("job/")
    for key in gone:
        with pytest.raises(PayloadLost):
            store.get(key)
    assert [store.get(key) for key in kept] == [key.encode() for key in kept]


def test_readers_see_one_whole_version_while_writers_replace_it(store: BlobStore) -> None:
    versions = [bytes([letter]) * 20_000 for letter in b"abcd"]
    store.put("a/b", versions[0])
    with ThreadPoolExecutor(12) as pool:
        written = [pool.submit(store.put, "a/b", version) for version in versions * 3]
        seen = {store.get("a/b") for _ in range(20)}
    assert [one.result() for one in written] == [None] * 12
    assert seen <= set(versions)


# -- a folder


def test_a_folder_that_is_not_mounted_or_can_not_be_written_is_away(tmp_path: Path) -> None:
    with pytest.raises(BlobStoreUnavailable, match="can't read"):
        FolderBlobs(tmp_path / "unmounted").get("a/b")
    (tmp_path / "in").write_text("in the way")
    with pytest.raises(BlobStoreUnavailable, match=f"can't write {tmp_path}/in/a"):
        FolderBlobs(tmp_path).put("in/a", b"x")


def test_a_write_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    store = FolderBlobs(tmp_path)
    store.put("a/b", b"old")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(BlobStoreUnavailable, match="No space left"):
        store.put("a/b", b"new")
    monkeypatch.undo()
    assert store.get("a/b") == b"old"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


# -- S3


def test_a_large_object_goes_up_in_parts_with_checksums(s3: Any, s3_endpoint: str) -> None:
    S3Blobs(BUCKET, "p", endpoint=s3_endpoint).put("large", LARGE)
    S3Blobs(BUCKET, "p", endpoint=s3_endpoint).put("small", b"x")
    large = s3.head_object(Bucket=BUCKET, Key="p/large", ChecksumMode="ENABLED")
    assert large["ETag"].strip('"').endswith("-3")
    assert large["ChecksumSHA256"]
    small = s3.head_object(Bucket=BUCKET, Key="p/small", ChecksumMode="ENABLED")
    assert small["ChecksumSHA256"] == "LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE="


def test_deleting_a_prefix_ends_uploads_that_were_broken_off(s3: Any, s3_endpoint: str) -> None:
    s3.create_multipart_upload(Bucket=BUCKET, Key="p/job/1")
    s3.create_multipart_upload(Bucket=BUCKET, Key="p/other/1")
    S3Blobs(BUCKET, "p", endpoint=s3_endpoint).delete_prefix("job/")
    left = s3.list_multipart_uploads(Bucket=BUCKET)["Uploads"]
    assert [upload["Key"] for upload in left] == ["p/other/1"]
    s3.abort_multipart_upload(Bucket=BUCKET, Key="p/other/1", UploadId=left[0]["UploadId"])


def test_a_bucket_that_is_not_there_is_away_and_nothing_in_it_is_lost(s3_endpoint: str) -> None:
    store = S3Blobs("no-such-bucket", endpoint=s3_endpoint)
    for act in (lambda: store.get("a"), lambda: store.put("a", b"x")):
        with pytest.raises(BlobStoreUnavailable, match="NoSuchBucket"):
            act()


def test_a_server_that_does_not_answer_is_away(
    s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    impatient = SimpleNamespace(**vars(time) | {"sleep": lambda _: None})
    monkeypatch.setattr("botocore.endpoint.time", impatient)  # no other thread's sleep
    with pytest.raises(BlobStoreUnavailable, match="can't read a") as error:
        S3Blobs(BUCKET, endpoint="http://127.0.0.1:9").get("a")
    assert "127.0.0.1" not in error.value.detail  # it is shown to tenants
    assert "http://127.0.0.1:9" in caplog.text


def test_a_stream_goes_in_from_where_it_stands_and_is_read_in_pieces(store: BlobStore) -> None:
    content = random.Random(1).randbytes(20 << 20)
    source = io.BytesIO(b"before" + content)
    source.seek(6)
    store.put_stream("files/1", source)
    with store.open("files/1") as file:
        pieces = list(iter(lambda: file.read(1_000_003), b""))
    assert b"".join(pieces) == content
    assert len(pieces) > 20
    assert store.get("files/1") == content


def test_one_blob_is_deleted_and_no_other(store: BlobStore) -> None:
    store.put("a/1", b"one")
    store.put("a/12", b"twelve")
    for _ in range(2):
        store.delete("a/1")
    with pytest.raises(PayloadLost):
        store.open("a/1")
    assert store.get("a/12") == b"twelve"
