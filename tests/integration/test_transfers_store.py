"""Jobs on their way in and out, as the store has them."""

from uuid import UUID

from sqlalchemy import Engine, text

from jobs.idempotency import Claim
from jobs.registry import SAMPLES
from jobs.store import db, endings, idempotency
from jobs.store.tenancy import acting
from jobs.submit import Order, submit_source
from tests.store import job

S3 = {"url": "s3://here/in.jsonl"}


def coming(database: Engine, model: str = "echo", **more: object) -> UUID:
    found: UUID = submit_source(database, SAMPLES, "default", Order(model), S3, **more)["id"]  # type: ignore[arg-type]
    return found


def transfers(database: Engine) -> list[dict[str, object]]:
    with database.connect() as tx:
        return [dict(row) for row in tx.execute(text("SELECT * FROM transfers")).mappings()]


def test_a_job_with_a_source_is_validating_and_has_a_transfer(
    database: Engine, database_url: str
) -> None:
    engine = db.connect(database_url, pool_size=1, role=db.API)
    held = Claim("default", "key", b"same")
    id = coming(engine, dialect="native", asked={"x": 1}, target=S3, claim=held)
    engine.dispose()
    found = job(database, id)
    assert (found["state"], found["total"]) == ("validating", 0)
    assert found["source"] == '{"url":"s3://here/in.jsonl"}'
    assert found["asked"] == '{"on_invalid":"reject","x":1}'
    [row] = transfers(database)
    assert (row["job_id"], row["kind"], row["epoch"]) == (id, "import", 0)
    with acting(database, "default") as tx:
        kept = idempotency.find(tx, held)
    assert kept is not None
    assert kept.job_id == id
    assert '"state":"validating"' in kept.answer


def test_a_job_may_learn_its_model_from_its_lines(database: Engine) -> None:
    found = job(database, coming(database, model=""))
    assert (found["model"], found["version"]) == ("", "")


def test_a_sweep_leaves_alone_what_is_validating(database: Engine) -> None:
    id = coming(database)
    with database.begin() as tx:
        assert endings.sweep(tx) == 0
    assert job(database, id)["finished_at"] is None
