"""Jobs whose items are read from files and S3, and what goes wrong on the way."""

import gzip
import io
import shutil
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import orjson
import pyarrow
import pytest
from botocore.retries.standard import ExponentialBackoff
from pyarrow import parquet

from jobs import ids
from jobs.blobs.payloads import Payloads
from jobs.identity import Limit
from jobs.intake import spool
from jobs.models.builtin_models import SAMPLES
from jobs.models.routing.route import Route, Share
from jobs.states import VERSIONINGS
from jobs.store.jobs import insert, transfers, verbs
from jobs.store.tenancy import EVERYBODY, acting
from jobs.store.tenants import limits
from jobs.usecases import tenant_files
from jobs.usecases.registry.registrar import Registrar
from jobs.usecases.submit import Order
from tests.integration.workers.transfers.conftest import World
from tests.support.stores.s3 import BUCKET, S3, times
from tests.support.stores.store import job
from tests.support.stores.transactions import execute, fetch, transact
from workers.transfers import child
from workers.transfers.child import run_transfer

LINES = b'{"custom_id": "a", "input": "one"}\n"two"\n{"input": "three", "params": {}}\n'


def items(world: World, id: UUID) -> list[tuple[Any, ...]]:
    query = "SELECT seq, custom_id, params, input FROM items WHERE job_id = :id ORDER BY seq"
    return [tuple(row) for row in fetch(world.database, query, {"id": id})]


THREE = [(0, "a", None, '"one"'), (1, None, None, '"two"'), (2, None, "{}", '"three"')]


def failed(world: World, id: UUID) -> dict[str, Any]:
    row = job(world.database, id)
    assert row.state == "failed", row
    found: dict[str, Any] = orjson.loads(str(row.error))
    return found


def handed_in(world: World, content: bytes, name: str = "in.jsonl") -> str:
    row = tenant_files.add(
        world.database, world.context.files, "default", io.BytesIO(content),
        purpose="batch", filename=name, expires_in_s=None,
    )  # fmt: skip
    return ids.show("file", row.id)


def test_items_are_read_from_s3(world: World, s3: S3) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINES)})
    assert world.carry() is None
    row = job(world.database, id)
    assert (row.state, row.total, row.custom_ids) == ("queued", 3, True)
    assert items(world, id) == THREE
    world.run()
    assert job(world.database, id).state == "completed"


def test_what_is_stored_of_an_import_is_its_items_and_its_own_fields(world: World, s3: S3) -> None:
    order = Order("echo", metadata={"a": "x" * 100})
    id = world.coming({"url": s3.put("open/in.jsonl", LINES)}, order)
    before = job(world.database, id).input_bytes
    assert before > 100
    assert world.carry() is None
    stored = '"one""two""three"', "a", "{}"
    assert job(world.database, id).input_bytes == before + len("".join(stored))


def test_items_are_read_from_a_file(world: World) -> None:
    id = world.coming({"file": handed_in(world, LINES)})
    assert world.carry() is None
    assert items(world, id) == THREE


def route_to_the_second(world: World) -> None:
    """Registers echo@2, which all calls by the bare name go to."""
    with acting(world.database, EVERYBODY) as tx:
        registrar = Registrar(tx, SAMPLES, "cli", lambda *_, **__: None)
        registrar.push("echo", "2", {"engine": "echo", "target_ms": 40})
        registrar.set_route(Route("echo", [Share("1", 0), Share("2", 100)]))


def test_slices_of_an_import_go_by_the_routes_of_its_end(world: World) -> None:
    source = {"file": handed_in(world, LINES)}
    ids = [world.coming(source, Order("echo", versioning=each)) for each in VERSIONINGS]
    route_to_the_second(world)
    for _ in ids:
        assert world.carry() is None
    versions = "SELECT version FROM slices WHERE job_id = :id"
    assert [world.scalar(versions, id=id) for id in ids] == ["1", "2"]
    assert [job(world.database, id).version for id in ids] == ["1", "1"]


def test_a_routed_batch_names_no_version(world: World) -> None:
    body = {"model": "echo@1", "messages": [{"role": "user", "content": "hi"}]}
    url = "/v1/chat/completions"
    line = orjson.dumps({"custom_id": "a", "method": "POST", "url": url, "body": body})
    order = Order("", versioning="routed")
    asked = {"endpoint": url}
    source = {"file": handed_in(world, line)}
    id = world.coming(source, order, dialect="openai", asked=asked)
    assert world.carry() is None
    assert failed(world, id)["errors"][0]["code"] == "pinned_model"


def test_items_are_unpacked(world: World, s3: S3) -> None:
    url = s3.put("open/in.jsonl.gz", gzip.compress(LINES))
    id = world.coming({"url": url, "compression": "gzip"})
    assert world.carry() is None
    assert items(world, id) == THREE


def test_items_are_read_from_csv(world: World, s3: S3) -> None:
    table = '\ufeffcustom_id,input,params\r\na,one,\r\n,two,\r\n,"th""r\nee",{}\r\n'
    id = world.coming({"url": s3.put("open/in.csv", table.encode()), "format": "csv"})
    assert world.carry() is None
    assert items(world, id) == [*THREE[:2], (2, None, "{}", '"th\\"r\\nee"')]


def test_items_are_read_from_parquet(world: World, s3: S3) -> None:
    table = pyarrow.table(
        {"custom_id": ["a", None, None], "input": ["one", "two", "three"],
         "params": [None, None, "{}"]}
    )  # fmt: skip
    out = io.BytesIO()
    parquet.write_table(table, out)
    url = s3.put("open/in.parquet", out.getvalue())
    id = world.coming({"url": url, "format": "parquet"})
    assert world.carry() is None
    assert items(world, id) == THREE


def test_long_items_go_to_the_blob_store(world: World, s3: S3) -> None:
    long = orjson.dumps("x" * 5000)
    id = world.coming({"url": s3.put("open/in.jsonl", long)})
    assert world.carry() is None
    [(_, _, _, reference)] = items(world, id)
    assert world.context.payloads.read(reference) == long


def test_fifty_thousand_lines(world: World, s3: S3) -> None:
    lines = b"".join(b'{"custom_id": "n-%d", "input": "text %d"}\n' % (n, n) for n in range(50_000))
    url = s3.put("open/large.jsonl.gz", gzip.compress(lines, 1))
    id = world.coming({"url": url, "compression": "gzip"})
    assert world.carry() is None
    assert job(world.database, id).total == 50_000
    assert world.scalar("SELECT count(DISTINCT custom_id) FROM items") == 50_000


# -- what stays wrong


def test_what_is_wrong_with_lines_is_named(world: World, s3: S3) -> None:
    url = s3.put("open/in.jsonl", b'"fine"\nnot json\n{"input": 7, "more": 1}\n')
    id = world.coming({"url": url}, Order("echo", webhook_url="https://hooks.example/"))
    assert world.carry() is None
    error = failed(world, id)
    assert error["code"] == "invalid"
    assert [fault["line"] for fault in error["errors"]] == [2, 3]
    assert world.scalar("SELECT type FROM webhook_deliveries") == "job.failed"
    assert items(world, id) == []


def test_a_thousand_faults_are_not_all_told(world: World, s3: S3) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", b"x\n" * 1500)})
    world.carry()
    error = failed(world, id)
    assert len(error["errors"]) == 100
    assert "at least 1000 faults" in error["message"]


def test_a_file_of_nothing_has_no_items(world: World, s3: S3) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", b"")})
    world.carry()
    assert failed(world, id)["errors"][0]["code"] == "empty"


def test_with_fail_item_what_is_wrong_fails_alone(world: World, s3: S3) -> None:
    url = s3.put("open/in.jsonl", b'"fine"\n"%s"\n' % (b"x" * 2_000_000))
    world.coming({"url": url}, Order("echo", on_invalid="fail_item"))
    assert world.carry() is None


BROKEN = [
    ("open/none.jsonl", {}, None, "no_such_object", "there is no object"),
    ("open/in.gz", {"compression": "gzip"}, LINES, "not_gzip", "is not gzip"),
    ("open/in.gz", {"compression": "gzip"}, gzip.compress(LINES)[:-9], "truncated", "ends in the"),
    ("open/in.csv", {"format": "csv"}, b"a,b\n1,2\n", "bad_columns", "'a', 'b'"),
    ("open/in.csv", {"format": "csv"}, b"input\n1,2\n", "not_csv", "row 1 has 2 fields"),
    ("open/in.csv", {"format": "csv"}, b"input\n\xff\n", "not_utf8", "not UTF-8"),
    ("open/in.csv", {"format": "csv"}, b'input\n"a"b\n', "not_csv", "no CSV"),
    ("open/in.parquet", {"format": "parquet"}, LINES, "not_parquet", "no Parquet"),
]


@pytest.mark.parametrize(
    ("key", "more", "body", "code", "says"), BROKEN, ids=[f"{row[3]}-{row[4]}" for row in BROKEN]
)
def test_what_can_not_be_read_fails_the_job_and_says_why(
    world: World, s3: S3, key: str, more: dict[str, str], body: bytes | None, code: str, says: str
) -> None:
    url = f"s3://{BUCKET}/{key}" if body is None else s3.put(key, body)
    id = world.coming({"url": url, **more})
    assert world.carry() is None
    error = failed(world, id)
    assert error["code"] == code
    assert says in error["message"]


def test_a_bucket_that_is_not_there(world: World) -> None:
    world.set(s3_allow="nowhere-at-all")
    id = world.coming({"url": "s3://nowhere-at-all/in.jsonl"})
    world.carry()
    assert failed(world, id)["code"] == "no_such_bucket"


def test_wrong_credentials(world: World, s3: S3) -> None:
    url = s3.put("open/in.jsonl", LINES)
    s3.fault = lambda method, path, key_id: "InvalidAccessKeyId" if key_id == "test" else None
    id = world.coming({"url": url})
    world.carry()
    error = failed(world, id)
    assert error["code"] == "bad_credentials"
    assert "AWS_ACCESS_KEY_ID" in error["message"]


def test_a_place_that_is_not_allowed_any_more(world: World, s3: S3) -> None:
    id = world.coming({"url": s3.put("closed/in.jsonl", LINES)})
    world.carry()
    assert failed(world, id)["code"] == "not_allowed"


def test_a_file_that_is_gone(world: World) -> None:
    id = world.coming({"file": ids.show("file", ids.new())})
    world.carry()
    assert failed(world, id)["code"] == "no_such_file"


def test_a_file_of_another_tenant_is_not_there(world: World) -> None:
    file = handed_in(world, LINES)
    execute(world.database, "UPDATE files SET tenant_id = 'other'")
    id = world.coming({"file": file})
    world.carry()
    assert failed(world, id)["code"] == "no_such_file"


def test_a_file_that_is_not_what_was_handed_in(world: World) -> None:
    id = world.coming({"file": handed_in(world, LINES)})
    execute(world.database, "UPDATE files SET sha256 = 'of something else'")
    world.carry()
    assert failed(world, id)["code"] == "payload_corrupt"


def test_a_model_that_is_served_no_more(world: World, s3: S3) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINES)})
    execute(world.database, "UPDATE jobs SET version = '9'")
    world.carry()
    assert failed(world, id)["code"] == "unknown_model"


def test_more_bytes_than_a_body_may_have(world: World, s3: S3) -> None:
    bomb = gzip.compress(b'"x"\n' * 500_000)
    world.set(max_ndjson_mb=1)
    id = world.coming({"url": s3.put("open/in.gz", bomb), "compression": "gzip"})
    world.carry()
    assert failed(world, id)["code"] == "too_large"


def test_more_items_than_a_job_may_have_are_not_read(world: World, s3: S3) -> None:
    """A small gzip of very many lines: reading ends with the first line beyond."""
    bomb = gzip.compress(b'"x"\n' * 2000 + b"x" * (64 << 20))
    world.set(max_items=1000, max_ndjson_mb=1)
    id = world.coming({"url": s3.put("open/in.gz", bomb), "compression": "gzip"})
    world.carry()
    assert failed(world, id)["errors"][0]["code"] == "too_many"


def test_items_that_would_take_more_disk_than_they_may(world: World, s3: S3) -> None:
    bomb = gzip.compress(b"1\n" * 100_000)
    world.set(max_spool_mb=1)
    id = world.coming({"url": s3.put("open/in.gz", bomb), "compression": "gzip"})
    world.carry()
    error = failed(world, id)
    assert error["code"] == "too_large"
    assert "spooled" in error["message"]


def test_a_line_without_an_end_counts_in_full(world: World, s3: S3) -> None:
    bomb = gzip.compress(b"x" * (200 << 20))
    world.set(max_ndjson_mb=128)
    id = world.coming({"url": s3.put("open/in.gz", bomb), "compression": "gzip"})
    world.carry()
    assert failed(world, id)["code"] == "too_large"


def test_a_table_that_repeats_one_value_counts_in_full(world: World, s3: S3) -> None:
    out = io.BytesIO()
    parquet.write_table(pyarrow.table({"input": ["x" * 1000] * 5000}), out)
    assert len(out.getvalue()) < 100_000
    world.set(max_ndjson_mb=1)
    id = world.coming({"url": s3.put("open/in.parquet", out.getvalue()), "format": "parquet"})
    world.carry()
    assert failed(world, id)["code"] == "too_large"


def test_a_table_of_nothing_but_columns_is_told_in_short(world: World, s3: S3) -> None:
    url = s3.put("open/in.csv", b"column," * 10_000 + b"\n")
    id = world.coming({"url": url, "format": "csv"})
    world.carry()
    assert failed(world, id)["code"] == "bad_columns"
    assert len(failed(world, id)["message"]) < 1000


def test_a_row_of_many_lines_is_bounded_as_one_is(world: World, s3: S3) -> None:
    most = world.context.models.max_line_bytes
    row = b'"a line\n",' * (most // 5)
    id = world.coming({"url": s3.put("open/in.csv", b"input\n" + row), "format": "csv"})
    world.carry()
    assert "a row is longer" in failed(world, id)["message"]
    lines = b'"a\nline"\n' * 1000
    good = world.coming({"url": s3.put("open/in.csv", b"input\n" + lines), "format": "csv"})
    world.carry()
    assert job(world.database, good).total == 1000


def test_what_failed_is_read_again_by_retry_once_it_is_mended(world: World, s3: S3) -> None:
    url = f"s3://{BUCKET}/open/later.jsonl"
    id = world.coming({"url": url})
    world.carry()
    assert failed(world, id)["code"] == "no_such_object"
    s3.put("open/later.jsonl", LINES)
    transact(world.database, verbs.retry, id)
    assert world.carry() is None
    assert items(world, id) == THREE


# -- what passes


def test_a_throttled_read_goes_on(world: World, s3: S3) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINES)})
    s3.fault = times(1, "SlowDown", "GET")
    assert world.carry() is None
    assert job(world.database, id).state == "queued"


def test_a_read_that_is_throttled_for_long_is_tried_again(
    world: World, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINES)})
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.0)
    s3.fault = times(100, "SlowDown", "GET")
    waits = world.carry()
    assert waits is not None
    assert 0 < waits.wait_s <= 1
    row = job(world.database, id)
    assert row.state == "validating"
    assert "SlowDown" in str(row.transfer_error)
    s3.fault = lambda method, path, key_id: None
    assert world.carry() is None
    assert items(world, id) == THREE


def test_a_full_disk_is_waited_for(world: World, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINES)})
    opened = partial(Path("/dev/full").open, "r+b", 0)
    monkeypatch.setattr(spool.tempfile, "SpooledTemporaryFile", lambda _: opened())
    for _ in range(8):
        waits = world.carry()
        assert waits is not None
        assert "No space left" in waits.error
    assert waits.wait_s > 30  # seldom, however long the disk stays full
    monkeypatch.undo()
    assert world.carry() is None
    assert items(world, id) == THREE


def test_an_import_stops_at_the_floor_of_free_space_and_goes_on_when_there_is_room(
    world: World, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "LOOK_BYTES", 10)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20, total=1 << 40)
    )
    id = world.coming({"url": s3.put("open/in.jsonl", LINES)})
    waits = world.carry()
    assert waits is not None
    assert "MILLRACE_MIN_FREE_MB" in waits.error
    assert job(world.database, id).state == "validating"
    monkeypatch.undo()
    assert world.carry() is None
    assert items(world, id) == THREE


def test_a_full_queue_is_waited_for(world: World, s3: S3) -> None:
    with acting(world.database, "default") as tx:
        limits.put(tx, "default", [Limit(queued_items=4)])
    before = world.coming({"url": s3.put("open/in.jsonl", LINES)})
    assert world.carry() is None
    id = world.coming({"url": s3.put("open/in.jsonl", LINES)})
    waits = world.carry()
    assert waits is not None
    assert "there is no room" in waits.error
    world.run()
    assert job(world.database, before).state == "completed"
    assert world.carry() is None
    assert job(world.database, id).state == "queued"


def test_more_items_than_the_tenant_may_ever_send_fail(world: World, s3: S3) -> None:
    with acting(world.database, "default") as tx:
        limits.put(tx, "default", [Limit(job_items=2)])
    id = world.coming({"url": s3.put("open/in.jsonl", LINES)})
    assert world.carry() is None
    assert failed(world, id)["errors"][0]["code"] == "too_many_items"


def test_a_lost_database_is_awaited(world: World, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINES)})
    mine = world.take()
    queue_job = insert.queue_job

    def away(tx: Any, *args: Any) -> None:
        tx.connection.driver_connection.close()
        queue_job(tx, *args)

    with monkeypatch.context() as patch:
        patch.setattr(insert, "queue_job", away)
        outcome = run_transfer(world.context, mine)
    assert outcome is not None
    assert "database" in outcome.error
    assert world.carry() is None
    assert items(world, id) == THREE


# -- what was overtaken


def test_a_cancel_wins_over_a_read(world: World, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINES)})
    mine = world.take()
    finish = transfers.finish

    def overtaken(tx: Any, mine: Any) -> bool:
        execute(world.database, "DELETE FROM transfers")
        return finish(tx, mine)

    monkeypatch.setattr(transfers, "finish", overtaken)
    assert run_transfer(world.context, mine) is None
    assert items(world, id) == []
    assert job(world.database, id).state == "validating"
    monkeypatch.undo()
    transact(world.database, verbs.cancel, id)


def test_of_two_keepers_the_last_alone_stores_the_first_takes_nothing(world: World, s3: S3) -> None:
    long = orjson.dumps("x" * 5000)
    id = world.coming({"url": s3.put("open/in.jsonl", long)})
    first = world.take()
    assert world.carry() is None
    assert run_transfer(world.context, first) is None
    assert world.scalar("SELECT count(*) FROM items") == 1
    [(_, _, _, reference)] = items(world, id)
    assert (
        Payloads.connect(
            world.context.settings.blobs,
            world.context.settings.blob_over_kb,
            world.context.settings.s3_endpoint,
        ).read(reference)
        == long
    )


def test_what_ends_process_after_process_fails(world: World, s3: S3) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINES)})
    for _ in range(4):
        mine = world.take()
        transact(world.database, transfers.postpone, mine, 0, "crashed", end="crashed")
    assert world.carry() is None
    assert failed(world, id)["code"] == "process_lost"


@pytest.mark.parametrize("silent", [False, True], ids=["killed", "with its keeper"])
def test_kills_from_outside_end_an_import_late(world: World, s3: S3, silent: bool) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINES)})

    def lose() -> None:
        mine = world.take()
        if not silent:
            transact(world.database, transfers.postpone, mine, 0, "was killed", end="killed")

    for _ in range(10):
        lose()
    assert world.carry() is None
    assert items(world, id) == THREE
    again = world.coming({"url": s3.put("open/in.jsonl", LINES)})
    for _ in range(20):
        lose()
    assert world.carry() is None
    assert failed(world, again)["code"] == "process_lost"


def test_what_goes_wrong_in_our_own_code_is_told_without_its_data(
    world: World, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINES)})

    def broken(*args: Any) -> None:
        raise ValueError("of somebody's data")

    with monkeypatch.context() as patch:
        patch.setattr(insert, "queue_job", broken)
        outcome = child.outcome(world.context, world.take())
    assert outcome is not None
    assert (outcome.error, outcome.end) == ("an error of ours: ValueError", "crashed")
    assert world.carry() is None
    assert job(world.database, id).state == "queued"


def test_parquet_without_pyarrow_says_what_to_install(
    world: World, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    id = world.coming({"url": s3.put("open/in.parquet", b""), "format": "parquet"})
    assert world.carry() is None
    error = failed(world, id)
    assert (error["code"], "millrace[parquet]" in error["message"]) == ("no_parquet", True)
