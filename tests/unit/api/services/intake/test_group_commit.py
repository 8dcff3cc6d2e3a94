"""Group commit on an event loop, without a database."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import create_engine

from api.services.intake import group_commit
from api.services.intake.group_commit import GroupCommit
from jobs.errors import SpendCap
from jobs.store.notifier import WorkNotifier

pytestmark = pytest.mark.anyio

DATABASE = create_engine("postgresql+psycopg://")  # never connected


class Store:
    """Takes the place of the transaction: each waits for `commit`."""

    def __init__(self) -> None:
        self.groups: list[list[Any]] = []
        self.began, self.commit = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, _: object, submissions: Sequence[Any], notifier: object) -> list[Any]:
        self.groups.append(list(submissions))
        self.began.release()
        self.commit.acquire()
        return [SpendCap() if one == "refused" else f"row of {one}" for one in submissions]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store()
    monkeypatch.setattr(group_commit, "store_together", made)
    return made


def storing(group: GroupCommit, *jobs: str) -> list["asyncio.Task[Any]"]:
    return [asyncio.create_task(group.store(job)) for job in jobs]  # type: ignore[arg-type]


async def test_jobs_that_arrive_while_one_commits_share_the_next_transaction(store: Store) -> None:
    group = GroupCommit(DATABASE, WorkNotifier(""))
    [first] = storing(group, "first")
    await asyncio.to_thread(store.began.acquire)  # a job that is alone doesn't wait
    rest = storing(group, "a", "refused", "b", "leaving")
    await asyncio.sleep(0)
    rest[3].cancel()  # its request ends
    store.commit.release(2)
    assert await first == "row of first"
    a, refused, b = await asyncio.gather(*rest[:3], return_exceptions=True)
    assert (a, b) == ("row of a", "row of b")
    assert isinstance(refused, SpendCap)
    await group.stop()
    assert store.groups == [["first"], ["a", "refused", "b", "leaving"]]
