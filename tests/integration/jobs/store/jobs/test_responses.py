"""Stored responses expire, those in the background with their jobs."""

from sqlalchemy import Engine

from jobs import ids
from jobs.models.builtin_models import SAMPLES
from jobs.settings import Settings
from jobs.store import db
from jobs.store.jobs import read, responses
from jobs.store.jobs.responses import NewResponse
from jobs.usecases.submit import Order, submit
from tests.support.stores.store import claim, settle
from tests.support.stores.transactions import transact


def test_an_expired_response_goes_with_its_job(database: Engine, settings: Settings) -> None:
    job = submit(database, SAMPLES, "acme", Order("echo"), array=["x"]).id
    settle(database, claim(database))
    live, gone = ids.new(), ids.new()
    with database.begin() as tx:
        for id, ended, keep_days in ((job, None, -1), (gone, b"{}", -1), (live, b"{}", 1)):
            new = NewResponse(id, "acme", None, b"{}", b"[]", ended)
            responses.store(tx, new, keep_days)
        assert responses.get(tx, "acme", gone) is None
        assert responses.chain(tx, "acme", job) == []
    keeper = db.connect(settings.database_url, pool_size=1, role=db.WORKER)
    assert transact(keeper, responses.delete_expired) == 2
    keeper.dispose()
    with database.begin() as tx:
        assert read.get(tx, "acme", job) is None
        assert responses.get(tx, "acme", live) is not None
