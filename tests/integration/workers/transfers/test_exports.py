"""Results that are written to files and S3, and what goes wrong on the way."""

import gzip
import hashlib
import io
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import orjson
import pytest
from pyarrow import parquet

from jobs import ids
from jobs.blobs import lines as result_lines
from jobs.models.builtin_models import SAMPLES
from jobs.store.jobs import files as file_rows
from jobs.store.jobs import read, transfers, verbs
from jobs.usecases.submit import Order, submit
from jobs.views import jobs
from tests.integration.workers.transfers.conftest import World, before
from tests.support.cases import each
from tests.support.stores.s3 import BUCKET, S3, times
from tests.support.stores.store import job
from tests.support.stores.transactions import execute, transact
from workers.keeper.cleanup import _expire_files
from workers.transfers import exporting
from workers.transfers.child import run_transfer

URL = f"s3://{BUCKET}/open/out/"
NASTY = 'ü"\\\u2028\u2029\x85/\U0001f600'
ITEMS = [
    {"custom_id": NASTY, "input": NASTY + "\t\u0001\x7f"},
    {"custom_id": "b", "input": "fail"},
    "x\u2028" * 2000,  # in the blob store
]
HOOK = "https://hooks.example/"


def shown(world: World, id: UUID) -> dict[str, Any]:
    row = transact(world.database, read.one, "default", id)
    found: dict[str, Any] = jobs.job_object(row)
    return found


def written(world: World, id: UUID) -> dict[str, Any]:
    """Manifest of what is due, which is the export of a job."""
    assert world.carry() is None
    return manifest(world, id)


def manifest(world: World, id: UUID) -> dict[str, Any]:
    output = shown(world, id)["output"]
    assert output["state"] == "complete", output
    found: dict[str, Any] = output["manifest"]
    return found


def failure(world: World, id: UUID) -> str:
    """Code of what is due, which is an export that fails."""
    assert world.carry() is None
    output = shown(world, id)["output"]
    assert (output["state"], output["manifest"]) == ("failed", None)
    return str(output["error"]["code"])


def told(world: World) -> int:
    found: int = world.scalar("SELECT count(*) FROM webhook_deliveries")
    return found


def read_by_route(world: World, id: UUID) -> bytes:
    """What GET …/results gives."""
    with world.database.connect() as tx:
        row = read.one(tx, "default", id)
        span = read.span(
            tx, "default", id, row.total, after=-1, gaps=False, outcome=None, limit=None
        )
    unit = world.context.models.unit(row.model, row.version)
    chunks = read.result_lines(world.database, row, span, unit, None)
    return b"".join(result_lines.resolve_lines(world.context.payloads, chunks))


def content(world: World, file: str) -> bytes:
    id = ids.parse("file", file)
    assert id is not None
    row = transact(world.database, file_rows.get, "default", id)
    assert row is not None
    return world.context.files.get(row.key)


def stored_files(world: World) -> list[str]:
    """Of those that have not expired."""
    with world.database.begin() as tx:
        _expire_files(world.context.files, tx)
    root = world.context.settings.home / "blobs" / "files"
    return [path.name for path in root.rglob("*") if path.is_file()]


def test_lines_in_s3_are_those_of_the_route(world: World, s3: S3) -> None:
    id = world.going(ITEMS, {"url": URL}, webhook_url=HOOK)
    assert shown(world, id)["output"]["state"] == "writing"
    found = written(world, id)
    [part] = found["parts"]
    folder = f"{URL}{ids.show('job', id)}/1/"
    assert part["url"] == f"{folder}results-00000.jsonl"
    body = s3.get(part["url"])
    assert body == read_by_route(world, id)
    by_unicode = [orjson.loads(line) for line in body.decode().splitlines()]
    assert [line["custom_id"] for line in by_unicode] == [NASTY, "b", None]
    assert (part["items"], part["bytes"]) == (3, len(body))
    assert part["sha256"] == hashlib.sha256(body).hexdigest()
    assert orjson.loads(s3.get(f"{folder}manifest.json")) == found
    assert found["counts"] == {
        "total": 3, "succeeded": 2, "failed": 1, "cancelled": 0, "expired": 0
    }  # fmt: skip
    about = world.scalar("SELECT about FROM webhook_deliveries")
    assert orjson.loads(about["manifest"]) == found


def test_lines_in_a_file_are_those_of_the_route(world: World) -> None:
    id = world.going(ITEMS, {"files": {"expires_in_s": 60}})
    [part] = written(world, id)["parts"]
    body = content(world, part["file"])
    assert body == read_by_route(world, id)
    row = dict(world.scalar("SELECT to_jsonb(files) FROM files"))
    assert (row["purpose"], row["bytes"]) == ("batch_output", len(body))
    assert row["filename"] == f"{ids.show('job', id)}_results.jsonl"
    assert world.scalar("SELECT expires_at - created_at = interval '60 s' FROM files")
    assert row["sha256"] == "\\x" + part["sha256"]


def test_parts_have_so_many_items_and_are_packed(world: World, s3: S3) -> None:
    packed = {"url": URL, "compression": "gzip", "part_items": 2}
    many = {"url": URL, "part_items": 2500}
    for (target, sizes), case in each([(packed, [2, 2, 1]), (many, [2500] * 4 + [500])]):
        with case:
            id = world.going([f"n {n}" for n in range(sum(sizes))], target)
            parts = written(world, id)["parts"]
            assert [part["items"] for part in parts] == sizes
            end = "jsonl.gz" if "compression" in target else "jsonl"
            names = [part["url"].rpartition("/")[2] for part in parts]
            assert names == [f"results-{n:05}.{end}" for n in range(len(sizes))]
            bodies = [s3.get(part["url"]) for part in parts]
            sums = [hashlib.sha256(body).hexdigest() for body in bodies]
            assert sums == [part["sha256"] for part in parts]
            lines = map(gzip.decompress, bodies) if "compression" in target else bodies
            assert b"".join(lines) == read_by_route(world, id)


def test_a_manifest_names_1000_parts_at_most(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "_MAX_PARTS", 3)
    id = world.going([f"n {n}" for n in range(10)], {"url": URL, "part_items": 1})
    assert [part["items"] for part in written(world, id)["parts"]] == [4, 4, 2]


def test_a_table_has_what_the_lines_have(world: World, s3: S3) -> None:
    id = world.going(ITEMS, {"url": URL, "format": "parquet", "compression": "gzip"})
    [part] = written(world, id)["parts"]
    rows = parquet.read_table(io.BytesIO(s3.get(part["url"]))).to_pylist()
    lines = [orjson.loads(line) for line in read_by_route(world, id).splitlines()]
    assert [row["seq"] for row in rows] == [0, 1, 2]
    for row, line in zip(rows, lines, strict=True):
        assert row["custom_id"] == line["custom_id"]
        assert row["outcome"] == line["outcome"]
        assert orjson.loads(row["output"] or "null") == line["output"]
        assert orjson.loads(row["error"] or "null") == line["error"]
        assert {"units": row["units"], "attempts": row["attempts"]} == {
            "units": line["usage"]["characters"], "attempts": line["attempts"]
        }  # fmt: skip


def test_a_table_that_was_written_is_read_again(world: World, s3: S3) -> None:
    id = world.going(["a", "b"], {"url": URL, "format": "parquet"})
    [part] = written(world, id)["parts"]
    table = parquet.read_table(io.BytesIO(s3.get(part["url"])))
    inputs = table.select(["custom_id", "output"]).rename_columns(["custom_id", "input"])
    out = io.BytesIO()
    parquet.write_table(inputs, out)
    again = world.coming({"url": s3.put("open/again.parquet", out.getvalue()), "format": "parquet"})
    assert world.carry() is None
    assert job(world.database, again).total == 2


def test_what_is_large_goes_up_in_parts_and_is_encrypted(world: World, s3: S3) -> None:
    encryption = {"sse": "aws:kms", "kms_key": "our-key"}
    id = world.going(["y" * 250_000] * 72, {"url": URL, "encryption": encryption})
    s3.asked.clear()
    [part] = written(world, id)["parts"]
    head = s3.head(part["url"])
    assert (head["ServerSideEncryption"], head["ContentLength"]) == ("aws:kms", part["bytes"])
    assert "our-key" in head["SSEKMSKeyId"]
    assert s3.head(f"{URL}{ids.show('job', id)}/1/manifest.json")["ServerSideEncryption"]
    puts = [path for method, path in s3.asked if method == "PUT" and path.endswith(".jsonl")]
    assert len(puts) == 3


def test_a_job_that_was_cancelled_is_written_as_it_is(world: World) -> None:
    id = submit(
        world.database, SAMPLES, "default", Order("echo"), array=["a", "b"], target={"files": {}}
    ).id
    transact(world.database, verbs.cancel, id)
    [part] = written(world, id)["parts"]
    outcomes = [orjson.loads(line)["outcome"] for line in content(world, part["file"]).splitlines()]
    assert outcomes == ["cancelled", "cancelled"]


# -- what goes wrong


def test_a_broken_upload_is_retried(world: World, s3: S3) -> None:
    id = world.going(["z" * 250_000] * 40, {"url": URL})
    s3.fault = times(2, "break", "PUT")
    [part] = written(world, id)["parts"]
    assert hashlib.sha256(s3.get(part["url"])).hexdigest() == part["sha256"]


@pytest.mark.parametrize("code", ["break", "SlowDown"])
def test_an_upload_that_goes_on_breaking_is_tried_later(world: World, s3: S3, code: str) -> None:
    id = world.going(["a"], {"url": URL}, webhook_url=HOOK)
    s3.fault = times(1000, code, "PUT")
    assert world.carry() is not None
    output = shown(world, id)["output"]
    assert output["state"] == "writing"
    assert output["last_error"]
    assert told(world) == 0
    s3.fault = lambda method, path, key_id: None
    assert written(world, id)["parts"][0]["items"] == 1
    assert told(world) == 1


def test_what_can_not_be_written_is_told_and_stays_readable(world: World, s3: S3) -> None:
    id = world.going(["a"], {"url": URL}, webhook_url=HOOK)
    s3.fault = lambda method, path, key_id: "InvalidAccessKeyId"
    assert failure(world, id) == "bad_credentials"
    about = world.scalar("SELECT about FROM webhook_deliveries")
    assert "bad_credentials" in about["manifest"]
    assert read_by_route(world, id).count(b"\n") == 1
    s3.fault = lambda method, path, key_id: None
    transact(world.database, verbs.retry, id)
    assert written(world, id)["generation"] == 2


def test_what_could_not_be_reached_for_a_day_is_given_up(world: World, s3: S3) -> None:
    id = world.going(["a"], {"url": URL})
    execute(world.database, "UPDATE jobs SET finished_at = now() - interval '25 h'")
    s3.fault = times(1000, "SlowDown", "PUT")
    assert failure(world, id) == "blobs_away"


def test_an_error_of_our_own_code_ends_an_export_at_once(world: World) -> None:
    id = world.going(["a"], {"files": {}})
    with before(read, "result_rows", lambda *_: int("of somebody's data")):
        assert failure(world, id) == "internal"
    transact(world.database, verbs.retry, id)
    assert written(world, id)["parts"][0]["items"] == 1


def test_a_place_that_is_not_allowed_any_more(world: World) -> None:
    id = world.going(["a"], {"url": f"s3://{BUCKET}/closed/"})
    assert world.carry() is None
    assert shown(world, id)["output"]["error"]["code"] == "not_allowed"


def test_a_payload_that_is_lost_fails_its_line(world: World) -> None:
    id = world.going(ITEMS, {"files": {}})
    world.context.payloads.delete_job(id)
    [part] = written(world, id)["parts"]
    body = content(world, part["file"])
    assert body == read_by_route(world, id)
    assert orjson.loads(body.splitlines()[2])["error"]["code"] == "payload_lost"


# -- what was overtaken


def test_of_two_keepers_one_writes_the_files(world: World) -> None:
    id = world.going(["a"], {"files": {}}, webhook_url=HOOK)
    first = world.take()
    assert world.carry() is None
    assert run_transfer(world.context, first) is None
    [part] = manifest(world, id)["parts"]
    assert content(world, part["file"]) == read_by_route(world, id)
    assert len(stored_files(world)) == 1
    assert world.scalar("SELECT count(*) FROM files") == 1
    assert told(world) == 1


def test_an_export_that_a_retry_overtakes_leaves_nothing(world: World, s3: S3) -> None:
    id = world.going(["a", "fail"], {"url": URL})
    files = world.going(["a", "fail"], {"files": {}})

    def retry(tx: Any, mine: transfers.Transfer) -> None:
        transact(world.database, verbs.retry, mine.job_id)

    with before(transfers, "finish", retry):
        for _ in range(2):
            assert run_transfer(world.context, world.take()) is None
    assert stored_files(world) == []
    assert s3.keys(f"open/out/{ids.show('job', id)}/") == []
    world.run()
    for _ in range(2):
        assert world.carry() is None
    assert manifest(world, files)["generation"] == manifest(world, id)["generation"] == 2


def test_a_job_deleted_meanwhile_leaves_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    id = world.going(["a"], {"files": {}})
    mine = world.take()
    rows = read.result_rows

    def overtaken(*args: Any) -> Any:
        yield from rows(*args)
        transact(world.database, verbs.delete, id)

    monkeypatch.setattr(read, "result_rows", overtaken)
    assert run_transfer(world.context, mine) is None
    assert stored_files(world) == []
    assert world.scalar("SELECT count(*) FROM files") == 0


def test_who_is_killed_before_its_job_is_deleted_leaves_nothing_for_good(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = world.going(["a"], {"files": {}})
    monkeypatch.setattr(transfers, "finish", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run_transfer(world.context, world.take())
    transact(world.database, verbs.delete, id)
    execute(world.database, "UPDATE files SET expires_at = now() WHERE expires_at IS NOT NULL")
    assert stored_files(world) == []
    assert world.scalar("SELECT count(*) FROM files") == 0


def test_files_that_were_given_up_meanwhile_are_written_again(world: World) -> None:
    id = world.going(["a"], {"files": {}})

    def give_up(*_: object) -> None:
        execute(world.database, "UPDATE files SET expires_at = now()")
        assert stored_files(world) == []

    with before(transfers, "finish", give_up):
        assert world.carry() is not None
    [part] = written(world, id)["parts"]
    assert content(world, part["file"]) == read_by_route(world, id)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_results_that_are_pruned_meanwhile_are_told_as_such(
    world: World, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    id = world.going(["a", "b"], {"url": URL, "format": form, "compression": "gzip"})
    rows = read.result_rows

    def overtaken(*args: Any) -> Any:
        yield next(rows(*args))
        execute(world.database, "UPDATE jobs SET results_pruned = true")
        yield from rows(*args)

    monkeypatch.setattr(read, "result_rows", overtaken)
    assert failure(world, id) == "pruned"
