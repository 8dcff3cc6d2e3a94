"""What carries transfers, in this process, and a real S3 beside it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from botocore.retries.standard import ExponentialBackoff
from sqlalchemy import Engine, text

from jobs.models.builtin_models import SAMPLES
from jobs.settings import Settings
from jobs.store.jobs import transfers
from jobs.store.jobs.transfers import Transfer
from jobs.store.queue import claim
from jobs.store.queue.settle import Result
from jobs.store.queue.settle import settle as settle_rows
from jobs.usecases.submit import Order, submit, submit_source
from tests.support.stores.s3 import BUCKET, S3, serving
from tests.support.stores.soundness import broken_invariants
from tests.support.stores.store import ECHO
from tests.support.stores.transactions import transact
from workers.transfers.child import Postponed, run_transfer
from workers.transfers.context import TransferContext


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    with serving() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """Asked again at once where it fails."""
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.0)
    yield s3_server
    s3_server.fault = lambda method, path, key_id: None


@pytest.fixture
def context(settings: Settings, s3: S3) -> Iterator[TransferContext]:
    found = settings.evolve(
        s3_endpoint=s3.endpoint, s3_allow=f"{BUCKET}/open, {BUCKET}/of/{{tenant}}", blob_over_kb=1,
        blobs=f"file:{settings.home}/blobs",
    )  # fmt: skip
    made = TransferContext.open(found)
    yield made
    made.database.dispose()


class World:
    """Jobs with sources and targets, and who carries them."""

    def __init__(self, database: Engine, context: TransferContext) -> None:
        self.database, self.context = database, context

    def set(self, **changes: Any) -> None:
        """Of the settings of who carries."""
        self.context = replace(self.context, settings=self.context.settings.evolve(**changes))

    def coming(self, source: dict[str, Any], order: Order | None = None, **more: Any) -> UUID:
        order = order or Order("echo")
        return UUID(str(submit_source(self.database, SAMPLES, "default", order, source, **more).id))

    def going(self, items: list[Any], target: dict[str, Any], **order: Any) -> UUID:
        """A job that has ended, with results that are to be written."""
        id: UUID = submit(
            self.database, SAMPLES, "default", Order("echo", **order), array=items, target=target,
            payloads=self.context.payloads,
        ).id  # fmt: skip
        self.run()
        return id

    def run(self) -> None:
        """Every item is its own output; those that say so fail."""
        while True:
            with self.database.begin() as tx:
                leases = claim.claim(tx, 1, {ECHO: 100_000}, 60)
                if not leases:
                    return
                found = [
                    _result(leases[n], seq, value)
                    for n, seq, value, *_ in claim.read_inputs(tx, leases)
                ]
                settle_rows(tx, leases, found)

    def take(self) -> Transfer:
        with self.database.begin() as tx:
            tx.execute(text("UPDATE transfers SET due_at = now()"))
            found = transfers.claim(tx, 60)
        assert found is not None
        return found

    def carry(self) -> Postponed | None:
        """What is due, as the keeper would: with what comes of it recorded."""
        mine = self.take()
        outcome = run_transfer(self.context, mine)
        if outcome:
            transact(self.database, transfers.postpone, mine, 0, outcome.error, end=outcome.end)
        return outcome

    def scalar(self, query: str, **values: Any) -> Any:
        with self.database.connect() as tx:
            return tx.scalar(text(query), values)


def _result(lease: claim.Lease, seq: int, value: str) -> Result:
    bad = value.startswith('"fail')
    return Result(
        lease.job_id, lease.tenant, seq, "failed" if bad else "succeeded", 3, None, None,
        None if bad else value, '{"code": "bad", "message": "…"}' if bad else None,
    )  # fmt: skip


@contextmanager
def before(module: Any, name: str, act: Callable[..., object]) -> Iterator[None]:
    """Has something happen just before each call of a function."""
    call = getattr(module, name)

    def called(*args: Any) -> Any:
        act(*args)
        return call(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, called)
        yield


@pytest.fixture
def world(database: Engine, context: TransferContext) -> Iterator[World]:
    yield World(database, context)
    assert broken_invariants(database) == set()
