"""What PostgreSQL alone would do: the durable path in bare SQL, without HTTP, JSON, claims or
scheduling. COPY in; for each slice of 1,000 its inputs are read and its results written in one
fenced transaction, by two threads or two processes; COPY out."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from multiprocessing import get_context

import psycopg

from jobs import clock
from ops.bench.harness.platform import BenchError

SLICE_ITEMS = 1000
_HANDS = 2
_CHUNK_BYTES = 1 << 18

Cursor = psycopg.Cursor[tuple[object, ...]]

_SCHEMA = """
    DROP TABLE IF EXISTS roof_items, roof_slices, roof_results;
    CREATE TABLE roof_items (job_id uuid, seq int, input text NOT NULL, PRIMARY KEY (job_id, seq));
    CREATE TABLE roof_slices (job_id uuid, start int, epoch int NOT NULL, state text NOT NULL,
                              PRIMARY KEY (job_id, start));
    CREATE TABLE roof_results (job_id uuid, seq int, output text NOT NULL,
                               PRIMARY KEY (job_id, seq));
"""


@contextmanager
def measure_ceiling(url: str, texts: Sequence[str]) -> Iterator[dict[str, Callable[[], float]]]:
    """Ways to carry these texts through, by name; each returns the seconds that it took."""
    with ExitStack() as stack:
        hands: dict[str, Executor] = {
            "threads": stack.enter_context(ThreadPoolExecutor(_HANDS)),
            "processes": stack.enter_context(
                ProcessPoolExecutor(_HANDS, mp_context=get_context("spawn"))
            ),
        }
        yield {
            f"{way}_{kind}": partial(_run, url, texts, way, hands[kind])
            for way, kind in product(_WAYS, hands)
        }


def _run(url: str, texts: Sequence[str], way: str, hands: Executor) -> float:
    job = uuid.uuid4()
    rows = "".join(f"{job}\t{seq}\t{text}\n" for seq, text in enumerate(texts)).encode()
    starts = list(range(0, len(texts), SLICE_ITEMS))
    with psycopg.connect(url) as connection:
        connection.execute(_SCHEMA)
        connection.commit()
        list(hands.map(_nothing, range(_HANDS)))  # they are there
        since_s = clock.monotonic()
        _copy_in(connection, job, rows, starts)
        shares = [starts[hand::_HANDS] for hand in range(_HANDS)]
        list(hands.map(partial(_slices, url, way, job), shares))
        _copy_out(connection, job, texts)
        took_s = clock.monotonic() - since_s
        connection.execute("DROP TABLE roof_items, roof_slices, roof_results")
    return took_s


def _nothing(_: int) -> None:
    pass


def _copy_in(
    connection: psycopg.Connection, job: uuid.UUID, rows: bytes, starts: Sequence[int]
) -> None:
    with connection.cursor().copy("COPY roof_items FROM STDIN") as copy:
        for since in range(0, len(rows), _CHUNK_BYTES):
            copy.write(rows[since : since + _CHUNK_BYTES])
    connection.execute(
        "INSERT INTO roof_slices SELECT %s, start, 1, 'leased' FROM unnest(%b::int[]) AS s (start)",
        [job, list(starts)],
    )
    connection.commit()


def _slices(url: str, way: str, job: uuid.UUID, starts: Sequence[int]) -> None:
    write = _WAYS[way]
    with psycopg.connect(url) as connection:
        for start in starts:
            cursor = connection.execute(
                "SELECT seq, input FROM roof_items WHERE job_id = %b AND seq >= %b AND seq < %b",
                [job, start, start + SLICE_ITEMS],
            )
            results = cursor.fetchall()
            fenced = connection.execute(
                "UPDATE roof_slices SET state = 'done'"
                " WHERE job_id = %b AND start = %b AND epoch = 1",
                [job, start],
            )
            if fenced.rowcount == 1:
                write(connection.cursor(), job, results)
            connection.commit()


def _by_copy(cursor: Cursor, job: uuid.UUID, results: Sequence[tuple[int, str]]) -> None:
    with cursor.copy("COPY roof_results FROM STDIN") as copy:
        copy.write("".join(f"{job}\t{seq}\t{output}\n" for seq, output in results))


def _by_unnest(cursor: Cursor, job: uuid.UUID, results: Sequence[tuple[int, str]]) -> None:
    seqs, outputs = zip(*results, strict=True)
    cursor.execute(
        "INSERT INTO roof_results SELECT %b, * FROM unnest(%b::int[], %b::text[])",
        [job, list(seqs), list(outputs)],
    )


_WAYS: dict[str, Callable[..., None]] = {"copy": _by_copy, "unnest": _by_unnest}


def _copy_out(connection: psycopg.Connection, job: uuid.UUID, texts: Sequence[str]) -> None:
    query = "COPY (SELECT output FROM roof_results WHERE job_id = %s ORDER BY seq) TO STDOUT"
    with connection.cursor().copy(query, [job]) as copy:
        found = b"".join(copy)
    if found.decode().split("\n") != [*texts, ""]:
        raise BenchError("the results in bare SQL are not the inputs")
