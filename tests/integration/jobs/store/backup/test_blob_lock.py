"""Lock between a backup and the removal of blobs."""

import threading

from sqlalchemy import Engine

from jobs.store.backup import blob_lock
from jobs.store.db import Tx
from tests.support.stores.transactions import transact
from tests.support.wait import PATIENCE_S


def test_nothing_removes_blobs_while_a_backup_keeps_them(database: Engine) -> None:
    removed = list[str]()

    def remove(tx: Tx) -> int:
        removed.append("a blob")
        return 1

    duty = blob_lock.unless_kept(remove)
    with blob_lock.kept(database):
        assert transact(database, duty) == 0
        assert not removed
    assert transact(database, duty) == 1
    assert removed


def test_a_backup_begins_once_a_removal_is_committed(database: Engine) -> None:
    order, begun, go_on = list[str](), threading.Event(), threading.Event()

    def remove(tx: Tx) -> int:
        begun.set()
        go_on.wait(PATIENCE_S)
        order.append("removed")
        return 1

    def keep() -> None:
        waits.set()
        with blob_lock.kept(database):
            order.append("kept")

    waits = threading.Event()
    remover = threading.Thread(target=transact, args=(database, blob_lock.unless_kept(remove)))
    keeper = threading.Thread(target=keep)
    remover.start()
    assert begun.wait(PATIENCE_S)
    keeper.start()
    assert waits.wait(PATIENCE_S)
    go_on.set()
    remover.join()
    keeper.join()
    assert order == ["removed", "kept"]
