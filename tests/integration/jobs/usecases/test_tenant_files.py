"""Files of a tenant: nobody sees one without its bytes, and no bytes are left of one."""

import io
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import pytest
from sqlalchemy import Engine, text

from jobs import clock
from jobs.blobs.folder import FolderBlobs
from jobs.errors import BlobStoreUnavailable, Conflict, PayloadLost, StorageFull
from jobs.identity import Limit
from jobs.store.jobs import files as store
from jobs.usecases import tenant_files
from tests.support.stores.transactions import execute, transact
from workers.keeper.cleanup import _expire_files

ALICE = "alice"
Happens = Callable[[str], object]


class Watched(FolderBlobs):
    """A store in which something happens before a file is put, or after it."""

    def __init__(self, blobs: FolderBlobs, before: Happens = str, after: Happens = str) -> None:
        self._blobs, self._before, self._after = blobs, before, after

    def put_stream(self, key: str, source: IO[bytes]) -> None:
        self._before(key)
        self._blobs.put_stream(key, source)
        self._after(key)

    def delete(self, key: str) -> None:
        self._blobs.delete(key)


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path)


def add(database: Engine, blobs: Any, content: bytes = b"some bytes", **more: Any) -> Any:
    asked = {"purpose": "batch", "filename": "a", "expires_in_s": None, **more}
    return tenant_files.add(database, blobs, ALICE, io.BytesIO(content), **asked)


def seen(database: Engine) -> list[Any]:
    return transact(database, store.page, ALICE, purpose=None, after=None, limit=9)


def test_a_retry_gets_what_the_same_request_has_stored(
    database: Engine, blobs: FolderBlobs
) -> None:
    row = add(database, blobs, key_id="key_1")
    its = {"key_id": "key_1", "retries": True}
    assert add(database, blobs, **its) == row
    others: list[dict[str, Any]] = [
        {**its, "content": b"other bytes"},
        {**its, "filename": "b"},
        {**its, "purpose": "evals"},
        {**its, "key_id": "key_2"},
        {"key_id": "key_1"},
    ]
    found = {add(database, blobs, **each).id for each in others}
    assert len(found - {row.id}) == len(others)
    execute(database, "UPDATE files SET created_at = created_at - interval '15 min'")
    assert add(database, blobs, **its).id not in found | {row.id}


def test_a_file_is_seen_once_its_bytes_are_there(database: Engine, blobs: FolderBlobs) -> None:
    found: list[Any] = []
    row = add(database, Watched(blobs, before=lambda _: found.append(seen(database))))
    assert found == [[]]
    assert [one.id for one in seen(database)] == [row.id]
    assert (row.bytes, blobs.get(row.key)) == (10, b"some bytes")


def test_what_a_dead_process_stored_goes_with_its_row(database: Engine, blobs: FolderBlobs) -> None:
    keys: list[str] = []

    def die(key: str) -> None:
        keys.append(key)
        raise BlobStoreUnavailable("as if it had died")

    with pytest.raises(BlobStoreUnavailable):
        add(database, Watched(blobs, after=die))
    assert seen(database) == []
    assert blobs.get(keys[0]) == b"some bytes"
    with database.begin() as tx:
        assert store.delete_expired(tx, clock.now() + timedelta(hours=5)) == []
        tx.execute(text("UPDATE files SET expires_at = now() - interval '1 s'"))
        assert _expire_files(blobs, tx) == 1
    with pytest.raises(PayloadLost):
        blobs.get(keys[0])


def test_a_file_that_is_removed_while_it_is_stored_is_none(
    database: Engine, blobs: FolderBlobs, tmp_path: Path
) -> None:
    """As an erased tenant's are."""
    with pytest.raises(Conflict):
        add(database, Watched(blobs, after=lambda _: execute(database, "DELETE FROM files")))
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name[0] != "."]


def test_room_is_for_so_many_bytes_of_a_tenant_or_key(database: Engine, blobs: FolderBlobs) -> None:
    of_key = [Limit(key="key_1", stored_bytes=25)]
    for _ in range(2):
        add(database, blobs, limits=of_key, key_id="key_1")
    with pytest.raises(StorageFull, match="jobs and files hold 20 bytes"):
        add(database, blobs, limits=of_key, key_id="key_1")
    add(database, blobs, limits=[Limit(key="key_2", stored_bytes=25)], key_id="key_2")
    with pytest.raises(StorageFull, match="hold 30 bytes"):
        add(database, blobs, limits=[Limit(stored_bytes=35)])
    add(database, blobs, limits=[Limit(model="minilm", stored_bytes=1)])
    assert len(seen(database)) == 4


def test_a_file_that_there_was_no_room_for_in_the_end_goes_at_once(
    database: Engine, blobs: FolderBlobs, tmp_path: Path
) -> None:
    """Two at once, each of which found room before it was stored."""
    limits = [Limit(stored_bytes=15)]
    overtaken = Watched(blobs, before=lambda _: add(database, blobs, limits=limits))
    with pytest.raises(StorageFull):
        add(database, overtaken, limits=limits)
    with database.begin() as tx:
        assert _expire_files(blobs, tx) == 1
    assert len(seen(database)) == 1
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2  # and the mark


def test_what_a_killed_writer_left_goes_with_the_file(blobs: FolderBlobs, tmp_path: Path) -> None:
    blobs.put("files/aa/bb", b"whole")
    (tmp_path / "files" / "aa" / ".bb.12ef").write_bytes(b"half")
    (tmp_path / "files" / "aa" / ".bc.12ef").write_bytes(b"another's")
    blobs.delete("files/aa/bb")
    assert [path.name for path in (tmp_path / "files" / "aa").iterdir()] == [".bc.12ef"]
