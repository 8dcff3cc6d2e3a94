"""Jobs whose items are read from files and S3, and what goes wrong on the way."""

import gzip
import io
import math
import shutil
import sys
from codecs import BOM_UTF8 as MARK
from collections.abc import Callable
from datetime import date, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import orjson
import pyarrow
import pytest
from pyarrow import parquet
from sqlalchemy.exc import NotSupportedError

from jobs import ids
from jobs.blobs.payloads import Payloads
from jobs.identity import Limit
from jobs.intake import invalid_lines, spool
from jobs.models.builtin_models import SAMPLES
from jobs.models.routing.route import Route, Share
from jobs.states import VERSIONINGS
from jobs.store.jobs import insert, transfers, verbs
from jobs.store.tenancy import EVERYBODY, acting
from jobs.store.tenants import limits
from jobs.usecases import tenant_files
from jobs.usecases.registry.registrar import Registrar
from jobs.usecases.submit import Order
from tests.integration.workers.transfers.conftest import World, before
from tests.support.cases import each
from tests.support.stores.s3 import BUCKET, S3, times
from tests.support.stores.store import job
from tests.support.stores.transactions import execute, fetch, transact
from workers.transfers import child
from workers.transfers.child import Postponed, run_transfer

LINES = b'{"custom_id": "a", "input": "one"}\n"two"\n{"input": "th\\"r\\nee", "params": {}}\n'
THREE = [(0, "a", None, '"one"'), (1, None, None, '"two"'), (2, None, "{}", '"th\\"r\\nee"')]
GZIP, CSV, PARQUET = {"compression": "gzip"}, {"format": "csv"}, {"format": "parquet"}
TEXT, JSON, A_COLUMN = {"format": "text"}, {"format": "json"}, {"column": "a"}
Arrive = Callable[..., UUID]


@pytest.fixture
def arrive(world: World, s3: S3) -> Arrive:
    """Submits a job whose items are an object in S3."""

    def submit(
        body: bytes = LINES, order: Order | None = None, key: str = "in", **more: str
    ) -> UUID:
        return world.coming({"url": s3.put(f"open/{key}", body), **more}, order)

    return submit


def items(world: World, id: UUID) -> list[tuple[Any, ...]]:
    query = "SELECT seq, custom_id, params, input FROM items WHERE job_id = :id ORDER BY seq"
    return [tuple(row) for row in fetch(world.database, query, {"id": id})]


def comes(world: World, id: UUID) -> None:
    """What is due brings the three items of LINES."""
    assert world.carry() is None
    assert items(world, id) == THREE
    assert job(world.database, id).state == "queued"


def waits(world: World, id: UUID, reason: str) -> Postponed:
    """What is due is put off for a reason."""
    outcome = world.carry()
    assert outcome is not None
    assert reason in outcome.error
    assert job(world.database, id).state == "validating"
    return outcome


def failed(world: World, id: UUID) -> dict[str, Any]:
    row = job(world.database, id)
    assert row.state == "failed", row
    found: dict[str, Any] = orjson.loads(str(row.error))
    return found


def fails(world: World, id: UUID, code: str, says: str = "") -> dict[str, Any]:
    """What is due fails with this code, or with one fault that has it."""
    assert world.carry() is None
    error = failed(world, id)
    assert code in (error["code"], *(fault["code"] for fault in error.get("errors", ())[:1]))
    assert says in error["message"]
    return error


def handed_in(world: World, content: bytes, name: str = "in.jsonl") -> str:
    row = tenant_files.add(
        world.database, world.context.files, "default", io.BytesIO(content),
        purpose="batch", filename=name, expires_in_s=None,
    )  # fmt: skip
    return ids.show("file", row.id)


def packed(table: dict[str, Any]) -> bytes:
    """A table as Parquet."""
    out = io.BytesIO()
    parquet.write_table(pyarrow.table(table), out)
    return out.getvalue()


def twice() -> pyarrow.Array:
    """A struct of two fields of one name."""
    return pyarrow.StructArray.from_arrays([pyarrow.array([1]), pyarrow.array([2])], ["a", "a"])


def test_items_are_read_in_every_form(world: World, arrive: Arrive) -> None:
    columns: dict[str, list[Any]] = {
        "custom_id": ["a", None, None], "input": ["one", "two", 'th"r\nee'],
        "params": [None, None, "{}"],
    }  # fmt: skip
    table = '\ncustom_id,input,params\r\na,one,\r\n\n,two,\r\n\r\n,"th""r\nee",{}\r\n\n'
    forms: list[tuple[dict[str, str], bytes]] = [
        ({}, LINES),
        ({}, LINES + b"\n \r\n"),
        (GZIP, gzip.compress(LINES)),
        (CSV, table.encode()),
        (PARQUET, packed(columns)),
    ]
    marked = [({}, MARK + LINES), (GZIP, gzip.compress(MARK + LINES)), (CSV, MARK + table.encode())]
    for (form, body), case in each([*forms, *marked]):
        with case:
            comes(world, arrive(body, **form))
    comes(world, world.coming({"file": handed_in(world, LINES)}))


def test_inputs_and_ids_are_taken_from_columns_of_any_format(world: World, arrive: Arrive) -> None:
    rows = [{"q": "one", "id": 7, "note": "x"}, {"q": "two", "id": None, "note": "y"}]
    named = {"column": "q", "id_column": "id"}
    whole = pyarrow.array([7, None], pyarrow.int64())
    forms: list[tuple[dict[str, str], bytes]] = [
        ({}, b"".join(orjson.dumps(row) + b"\n" for row in rows) + b"\n"),
        (JSON, orjson.dumps(rows)),
        (CSV, b"note,q,id\nx,one,7\ny,two,\n"),
        (PARQUET, packed({"id": whole, "q": ["one", "two"], "note": ["x", "y"]})),
    ]
    for (form, body), case in each(forms):
        with case:
            id = arrive(body, **form, **named)
            assert world.carry() is None
            assert items(world, id) == [(0, "7", None, '"one"'), (1, None, None, '"two"')]
    long = b"x" * world.context.models.max_line_bytes  # of a column that isn't taken
    for (form, body), case in each([({}, b'{"q": "y", "note": "%b"}'), (CSV, b"q,note\ny,%b")]):
        with case:
            id = arrive(body % long, **form, column="q")
            assert world.carry() is None
            assert items(world, id) == [(0, None, None, '"y"')]
    nulls = [({}, b'{"q": null}'), (JSON, b'[{"q": null}]'), (PARQUET, packed({"q": [None]}))]
    for (form, body), case in each(nulls):
        with case:
            id = arrive(body, **form, column="q")
            assert world.carry() is None
            assert items(world, id) == [(0, None, None, "null")]
    lines = arrive(MARK + b"one\r\n\ntwo", **TEXT)
    document = arrive(MARK + b'["one", "", {"input": "two"}]', key="list", **JSON)
    assert (world.carry(), world.carry()) == (None, None)
    plain = [(n, None, None, f'"{text}"') for n, text in enumerate(("one", "", "two"))]
    assert items(world, lines) == items(world, document) == plain


def test_objects_of_a_folder_are_read_by_key(world: World, s3: S3) -> None:
    for key, body in {
        "b.csv.gz": gzip.compress(b'custom_id,input\nb,"two\nlines"\nc,three\n'),
        "a=1/part.jsonl": b'"one"\n\n', "_SUCCESS": b"", "_temporary/0.jsonl": b"no\n",
        "c.jsonl": b"", "d/.part.crc": b"no\n",
    }.items():  # fmt: skip
        s3.put(f"open/in/{key}", body)
    s3.put("open/in2.jsonl", b'"four"\n')
    folder, other = f"s3://{BUCKET}/open/in/", f"s3://{BUCKET}/open/in2.jsonl"
    its = [(0, None, None, '"one"'), (1, "b", None, '"two\\nlines"'), (2, "c", None, '"three"')]
    for source, case in each([{"url": folder}, {"urls": [folder, other]}]):
        with case:
            id = world.coming(source)
            assert world.carry() is None
            assert items(world, id) == its + [(3, None, None, '"four"')] * ("urls" in source)
    s3.put("open/in/a=1/part.jsonl", b'"one"\n{}\n')
    s3.put("open/in/b.csv.gz", gzip.compress(b'custom_id,input\nb,"two\nlines"\nb,three\n'))
    s3.put(
        "open/in/e.parquet", packed({"custom_id": ["e", "f"], "input": ["x", ""], "params": [5, 5]})
    )
    error = fails(world, world.coming({"url": folder}), "invalid", "4 faults")
    first = error["errors"].pop(0)
    assert (first["file"], first["line"]) == (f"{folder}a=1/part.jsonl", 2)
    at = f"{folder}b.csv.gz"
    assert [{name: fault.get(name) for name in PLACE} for fault in error["errors"]] == [
        {"file": at, "line": 4, "row": None, "custom_id": None, "first": {"file": at, "line": 2}},
        *({"file": f"{folder}e.parquet", "line": None, "row": n, "custom_id": id, "first": None}
          for n, id in ((1, "e"), (2, "f"))),
    ]  # fmt: skip
    assert error["errors"][0]["message"] == f"custom_id is already that of {at}, line 2"
    s3.put("open/odd/a\\b.jsonl", b'"one"\n')
    odd = world.coming({"url": f"s3://{BUCKET}/open/odd/"})
    fails(world, odd, "bad_request", "the key has '\\\\' in it; rename it")
    world.set(blobs=f"s3://{BUCKET}/open/odd")
    own = world.coming({"url": f"s3://{BUCKET}/open/"})
    assert "odd" not in str(fails(world, own, "invalid"))
    none = world.coming({"url": f"s3://{BUCKET}/open/none/"})
    fails(world, none, "no_such_object", "no object below")


def test_values_of_parquet_have_their_forms_and_ids_their_digits(
    world: World, arrive: Arrive
) -> None:
    taken = datetime(2024, 1, 2, 3, 4, 5, 678901)
    instants = pyarrow.array([taken, None], pyarrow.timestamp("ns"))
    id = arrive(packed({"input": instants, "custom_id": [7.0, None]}), **PARQUET)
    assert world.carry() is None
    stored = [(0, "7", None, '"2024-01-02T03:04:05.678901000"'), (1, None, None, "null")]
    assert items(world, id) == stored


def test_an_import_runs_as_a_job_and_counts_its_items_and_fields(
    world: World, arrive: Arrive
) -> None:
    id = arrive(order=Order("echo", metadata={"a": "x" * 100}))
    before = job(world.database, id).input_bytes
    assert before > 100
    assert world.carry() is None
    row = job(world.database, id)
    assert (row.state, row.total, row.custom_ids) == ("queued", 3, True)
    stored = "".join(value or "" for _, *fields in THREE for value in fields)
    assert row.input_bytes == before + len(stored)
    world.run()
    assert job(world.database, id).state == "completed"


def route_to_the_second(world: World) -> None:
    """Registers echo@2, which all calls by the bare name go to."""
    with acting(world.database, EVERYBODY) as tx:
        registrar = Registrar(tx, SAMPLES, "cli", lambda *_, **__: None)
        registrar.push("echo", "2", {"engine": "echo", "target_ms": 40})
        registrar.set_route(Route("echo", [Share("1", 0), Share("2", 100)]))


def test_slices_of_an_import_go_by_the_routes_of_its_end(world: World) -> None:
    source = {"file": handed_in(world, LINES)}
    ids = [world.coming(source, Order("echo", versioning=one)) for one in VERSIONINGS]
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
    order, source = Order("", versioning="routed"), {"file": handed_in(world, line)}
    id = world.coming(source, order, dialect="openai", asked={"endpoint": url})
    fails(world, id, "pinned_model")


def test_fifty_thousand_lines(world: World, arrive: Arrive) -> None:
    lines = b"".join(b'{"custom_id": "n-%d", "input": "text %d"}\n' % (n, n) for n in range(50_000))
    id = arrive(gzip.compress(lines, 1), **GZIP)
    assert world.carry() is None
    assert job(world.database, id).total == 50_000
    assert world.scalar("SELECT count(DISTINCT custom_id) FROM items") == 50_000


# -- what stays wrong


def test_what_is_wrong_with_lines_is_named(world: World, arrive: Arrive) -> None:
    order = Order("echo", webhook_url="https://hooks.example/")
    id = arrive(b'"fine"\nnot json\n{"input": 7, "more": 1}\n', order)
    error = fails(world, id, "invalid")
    assert [fault["line"] for fault in error["errors"]] == [2, 3]
    rows = b'custom_id,input,params\na,"x\ny",\nb,z,no object\n'
    [fault] = fails(world, arrive(rows, **CSV), "invalid")["errors"]
    assert (fault["line"], fault["custom_id"], fault["loc"]) == (4, "b", ["params"])
    assert world.scalar("SELECT type FROM webhook_deliveries") == "job.failed"
    assert items(world, id) == []
    error = fails(world, arrive(b"x\n" * 1500), "invalid", "at least 1000 faults")
    assert len(error["errors"]) == 100
    arrive(b'"fine"\n"%s"\n' % (b"x" * 2_000_000), Order("echo", on_invalid="fail_item"))
    assert world.carry() is None


PLACE = ("file", "line", "row", "custom_id", "first")
BROKEN = [
    ({}, b"", "empty", ""),
    (GZIP, LINES, "not_gzip", "is not gzip"),
    (GZIP, gzip.compress(LINES)[:-9], "truncated", "ends in the"),
    (CSV, b"a,b\n1,2\n", "bad_columns", "has several columns; name one with column: a, b"),
    (CSV, b"column," * 10_000 + b"\n", "bad_columns", ""),
    (CSV, b'input\n\n"1\n",2\n', "not_csv", "the input, line 3: 2 fields, where the first row"),
    (CSV, b"\n\n", "bad_columns", ""),
    (CSV, b"input\nx\n\xff\n", "not_utf8", "line 3: not UTF-8"),
    (CSV, b'input\nx\n"a"b\n', "not_csv", "line 3: no CSV"),
    (TEXT, b"x\n\xff\n", "not_utf8", "line 2: not UTF-8"),
    (JSON, b"[1, NaN]", "bad_value", "not valid JSON"),
    (JSON | A_COLUMN, b'[{"a": "x"}, {"b": "y"}]', "bad_columns", "element 1: there is no 'a'"),
    (A_COLUMN, b'{"a": "x"}\n["y"]\n', "bad_columns", "line 2: no object"),
    (A_COLUMN, b'{"a": "x"}\n{"a": 18446744073709551616}\n', "bad_value", "line 2: not valid JSON"),
    (PARQUET, LINES, "not_parquet", "no Parquet"),
    (PARQUET, packed({"input": [1.0] * 700 + [math.nan]}), "bad_value", "701: column 'input': NaN"),
    (PARQUET, packed({"input": ["x"], "params": [{"a": [math.inf]}]}), "bad_value",
     "row 1: column 'params': field 'a': Infinity"),
    (PARQUET, packed({"input": [date(1, 1, 1)], "custom_id": [0.5]}), "bad_value",
     "row 1: column 'custom_id': 0.5 is no id"),
    (PARQUET, packed({"input": twice()}), "bad_value", "column 'input': a struct has a field"),
]  # fmt: skip


def test_what_can_not_be_read_fails_the_job_and_says_why(world: World, arrive: Arrive) -> None:
    for (form, body, code, says), case in each(BROKEN):
        with case:
            error = fails(world, arrive(body, **form), code, says)
            assert len(error["message"]) < 1000


GOOD = [*range(600)]
ALONE: list[tuple[dict[str, str], bytes, dict[int, str]]] = [
    (CSV, b'custom_id,input\na,x\nb\n\n"c"c,d\n\xff,\nd,"y\nz"\ne,1,2\nf,v\n', {
        1: "line 3: 1 fields, where", 2: "line 5: no CSV", 3: "line 6: not UTF-8",
        5: "line 9: 3 fields, where"}),
    (CSV, b'custom_id,input\nc,"x\xff\nmade,up"\nd,"x\ny\xff"\ne,z\n', {
        0: "line 2: not UTF-8", 1: "line 4: not UTF-8"}),
    (TEXT, b"x\n\xff\ny\n", {1: "line 2: not UTF-8"}),
    (A_COLUMN, b'{"a": "x"}\n["y"]\n{"b": 1}\n{\n{"a": 18446744073709551616}\n{"a": 1}\n', {
        1: "line 2: no object", 2: "line 3: there is no 'a'", 3: "line 4: not valid JSON",
        4: "line 5: not valid JSON"}),
    (JSON | A_COLUMN, b'[{"a": "x"}, {"b": "y"}, {"a": 2}]', {1: "element 1: there is no 'a'"}),
    (PARQUET,
     packed({"input": [*GOOD, math.nan, 2, math.inf], "custom_id": [*map(str, GOOD), *"abc"]}), {
        600: "row 601: column 'input': NaN", 602: "row 603: column 'input': Infinity"}),
]  # fmt: skip


def test_rows_that_can_not_be_read_fail_alone_where_the_job_says_so(
    world: World, arrive: Arrive
) -> None:
    for (form, body, broken), case in each(ALONE):
        with case:
            id = arrive(body, Order("echo", on_invalid="fail_item"), **form)
            assert world.carry() is None
            rows = items(world, id)
            messages = {row[0]: invalid_lines.message_of(row[3]) for row in rows}
            found = {seq: said for seq, said in messages.items() if said}
            assert found.keys() == broken.keys()
            assert all(found[seq].startswith(said) for seq, said in broken.items()), found
            if form == PARQUET:
                assert [row[1] for row in rows[-3:]] == ["a", "b", "c"]


def test_a_quote_that_is_not_closed_fails_the_job_whatever_it_says(
    world: World, arrive: Arrive
) -> None:
    for body, says in (
        (b'input\nx\n"y\nz\n"a"\n', "line 3: no CSV"),
        (b'a,input\nx,1\na,1,"y\nb,z\nc,ok"\nd,w\n', "line 3: 3 fields, where"),
    ):
        id = arrive(body, Order("echo", on_invalid="fail_item"), **CSV | {"column": "input"})
        fails(world, id, "not_csv", says)


def test_objects_that_can_not_be_reached_fail_the_job(world: World, s3: S3) -> None:
    world.set(s3_allow=f"{BUCKET}/open, nowhere-at-all")
    closed, none = s3.put("closed/in.jsonl", LINES), f"s3://{BUCKET}/open/none.jsonl"
    for (url, code, says), case in each(
        [
            (none, "no_such_object", "there is no object"),
            (closed, "not_allowed", ""),
            ("s3://nowhere-at-all/in.jsonl", "no_such_bucket", ""),
        ]
    ):
        with case:
            fails(world, world.coming({"url": url}), code, says)
    wrong = world.coming({"url": s3.put("open/in.jsonl", LINES)})
    s3.fault = lambda method, path, key_id: "InvalidAccessKeyId" if key_id == "test" else None
    fails(world, wrong, "bad_credentials", "AWS_ACCESS_KEY_ID")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("DELETE FROM files", "no_such_file"),
        ("UPDATE files SET tenant_id = 'other'", "no_such_file"),
        ("UPDATE files SET sha256 = 'of something else'", "payload_corrupt"),
        ("UPDATE jobs SET version = '9'", "unknown_model"),
    ],
)
def test_a_file_or_model_that_is_not_the_same_any_more(
    world: World, change: str, code: str
) -> None:
    id = world.coming({"file": handed_in(world, LINES)})
    execute(world.database, change)
    fails(world, id, code)


def same_value() -> bytes:
    made = packed({"input": ["x" * 1000] * 5000})
    assert len(made) < 100_000
    return made


@pytest.mark.parametrize(
    ("bounds", "form", "body", "code", "says"),
    [
        ({"max_ndjson_mb": 1}, GZIP, lambda: gzip.compress(b'"x"\n' * 500_000), "too_large", ""),
        # Reading ends with the first line beyond.
        ({"max_items": 1000, "max_ndjson_mb": 1}, GZIP,
         lambda: gzip.compress(b'"x"\n' * 2000 + b"x" * (64 << 20)), "too_many", ""),
        ({"max_spool_mb": 1}, GZIP, lambda: gzip.compress(b"1\n" * 100_000), "too_large",
         "spooled"),
        ({"max_ndjson_mb": 128}, GZIP, lambda: gzip.compress(b"x" * (200 << 20)), "too_large", ""),
        ({"max_ndjson_mb": 1}, PARQUET, same_value, "too_large", ""),
        ({"max_json_mb": 1}, JSON, lambda: b"[" + b"1," * 600_000 + b"1]", "too_large",
         "a JSON document has 1,048,576 bytes at most"),
    ],
    ids=["bytes", "items", "disk", "a line without an end", "a table of one value", "a document"],
)  # fmt: skip
def test_a_small_object_of_more_than_a_job_may_have_fails(
    world: World, arrive: Arrive, bounds: dict[str, int], form: dict[str, str],
    body: Callable[[], bytes], code: str, says: str,
) -> None:  # fmt: skip
    world.set(**bounds)
    fails(world, arrive(body(), **form), code, says)


def test_files_have_one_bound_together(world: World, s3: S3) -> None:
    urls = [s3.put(f"open/{n}.parquet", packed({"input": ["x" * 1000] * 400})) for n in range(3)]
    world.set(max_ndjson_mb=1)
    fails(world, world.coming({"urls": urls}), "too_large")


def test_a_row_of_many_lines_is_bounded_as_one_is(world: World, arrive: Arrive) -> None:
    row = b'"a line\n",' * (world.context.models.max_line_bytes // 5)
    fails(world, arrive(b"input\n" + row, **CSV), "not_csv", "a row is longer")
    good = arrive(b"input\n" + b'"a\nline"\n' * 1000, **CSV)
    assert world.carry() is None
    assert job(world.database, good).total == 1000


def test_what_failed_is_read_again_by_retry_once_it_is_mended(world: World, s3: S3) -> None:
    id = world.coming({"url": f"s3://{BUCKET}/open/later.jsonl"})
    fails(world, id, "no_such_object")
    s3.put("open/later.jsonl", LINES)
    transact(world.database, verbs.retry, id)
    comes(world, id)


# -- what passes


def test_a_throttled_read_goes_on_or_is_tried_again(world: World, s3: S3, arrive: Arrive) -> None:
    id = arrive()
    s3.fault = times(1, "SlowDown", "GET")
    comes(world, id)
    id = arrive()
    s3.fault = times(100, "SlowDown", "GET")
    assert 0 < waits(world, id, "SlowDown").wait_s <= 1
    assert "SlowDown" in str(job(world.database, id).transfer_error)
    s3.fault = lambda method, path, key_id: None
    comes(world, id)


def test_a_full_disk_is_waited_for(
    world: World, arrive: Arrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = arrive()
    opened = partial(Path("/dev/full").open, "r+b", 0)
    monkeypatch.setattr(spool.tempfile, "SpooledTemporaryFile", lambda _: opened())
    waited_s = [waits(world, id, "No space left").wait_s for _ in range(8)]
    assert waited_s[-1] > 30  # seldom, however long the disk stays full
    monkeypatch.undo()
    comes(world, id)


def test_an_import_stops_at_the_floor_of_free_space_and_goes_on_when_there_is_room(
    world: World, arrive: Arrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "LOOK_BYTES", 10)
    little = SimpleNamespace(free=1 << 20, total=1 << 40)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: little)
    id = arrive()
    waits(world, id, "MILLRACE_MIN_FREE_MB")
    monkeypatch.undo()
    comes(world, id)


def test_a_full_queue_is_waited_for_unless_a_job_may_never_be_so_large(
    world: World, arrive: Arrive
) -> None:
    def bound(limit: Limit) -> None:
        with acting(world.database, "default") as tx:
            limits.put(tx, "default", [limit])

    bound(Limit(queued_items=4))
    before = arrive()
    assert world.carry() is None
    id = arrive()
    waits(world, id, "there is no room")
    world.run()
    assert job(world.database, before).state == "completed"
    comes(world, id)
    bound(Limit(job_items=2))
    fails(world, arrive(), "too_many_items")


def test_a_lost_database_is_awaited(world: World, arrive: Arrive) -> None:
    id, mine = arrive(), world.take()
    with before(insert, "queue_job", lambda tx, *_: tx.connection.driver_connection.close()):
        outcome = run_transfer(world.context, mine)
    assert outcome is not None
    assert "database" in outcome.error
    comes(world, id)


# -- what was overtaken


def test_a_cancel_wins_over_a_read(world: World, arrive: Arrive) -> None:
    id, mine = arrive(), world.take()
    with before(transfers, "finish", lambda *_: execute(world.database, "DELETE FROM transfers")):
        assert run_transfer(world.context, mine) is None
    assert items(world, id) == []
    assert job(world.database, id).state == "validating"
    transact(world.database, verbs.cancel, id)


def test_of_two_keepers_the_last_alone_stores_the_first_takes_nothing(
    world: World, arrive: Arrive
) -> None:
    long = orjson.dumps("x" * 5000)
    id, first = arrive(long), world.take()
    assert world.carry() is None
    assert run_transfer(world.context, first) is None
    assert world.scalar("SELECT count(*) FROM items") == 1
    [(_, _, _, reference)] = items(world, id)
    its = world.context.settings
    assert Payloads.connect(its.blobs, its.blob_over_kb, its.s3_endpoint).read(reference) == long


def lose(world: World, count: int, end: str) -> None:
    """So many processes end in a row, or vanish with their keeper."""
    for _ in range(count):
        mine = world.take()
        if end:
            transact(world.database, transfers.postpone, mine, 0, f"was {end}", end=end)


@pytest.mark.parametrize(
    ("end", "few", "many"),
    [("crashed", 3, 4), ("killed", 10, 20), ("", 10, 20)],
    ids=["crashed", "killed", "with its keeper"],
)
def test_what_ends_process_after_process_fails_later_where_it_was_killed(
    world: World, arrive: Arrive, end: str, few: int, many: int
) -> None:
    id = arrive()
    lose(world, few, end)
    comes(world, id)
    again = arrive()
    lose(world, many, end)
    fails(world, again, "process_lost")


def test_what_goes_wrong_in_our_own_code_is_told_without_its_data(
    world: World, arrive: Arrive
) -> None:
    id = arrive()
    with before(insert, "queue_job", lambda *_: int("of somebody's data")):
        assert child.outcome(world.context, world.take()) is None
    error = failed(world, id)
    assert error["code"] == "internal"
    assert "an error of ours, ValueError" in error["message"]
    assert "somebody" not in str(error)
    transact(world.database, verbs.retry, id)
    comes(world, id)


def test_an_error_on_the_way_to_the_job_counts_as_no_death_of_its_process(
    world: World, arrive: Arrive
) -> None:
    id = arrive()
    with before(transfers, "job", lambda *_: int("of somebody's data")):
        outcome = child.outcome(world.context, world.take())
    assert outcome is not None
    assert (outcome.error, outcome.end) == ("an error of ours: ValueError", None)
    comes(world, id)


@pytest.mark.parametrize(
    ("error", "end"),
    [(MemoryError(), "crashed"), (NotSupportedError("", {}, Exception("cached plan")), None)],
)
def test_an_error_that_may_pass_is_tried_again(
    world: World, arrive: Arrive, error: Exception, end: str | None
) -> None:
    def fails(*_: Any) -> None:
        raise error

    id = arrive()
    with before(insert, "queue_job", fails):
        outcome = child.outcome(world.context, world.take())
    assert outcome is not None
    assert outcome.end == end
    comes(world, id)


def test_parquet_without_pyarrow_says_what_to_install(
    world: World, arrive: Arrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    fails(world, arrive(b"", **PARQUET), "no_parquet", "millrace[parquet]")
