"""Durable path in bare SQL, without HTTP, JSON, claims or scheduling: what PostgreSQL can do.

COPY in; for each slice of 1,000 its inputs are read and its results written in one fenced
transaction, by two threads or two processes; COPY out.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import product
from multiprocessing import get_context
from typing import Any

import psycopg

from jobs import clock
from ops.bench.harness.errors import BenchError

_SLICE_ITEMS = 1000
_WORKERS = 2
_CHUNK_BYTES = 1 << 18

_DROP = "DROP TABLE IF EXISTS raw_items, raw_slices, raw_results"
_SCHEMA = """
    CREATE TABLE raw_items (job_id uuid, seq int, input text NOT NULL, PRIMARY KEY (job_id, seq));
    CREATE TABLE raw_slices (job_id uuid, start int, epoch int NOT NULL, state text NOT NULL,
                             PRIMARY KEY (job_id, start));
    CREATE TABLE raw_results (job_id uuid, seq int, output text NOT NULL,
                              PRIMARY KEY (job_id, seq));
"""
_CUT = "INSERT INTO raw_slices SELECT %s, s, 1, 'leased' FROM unnest(%b::int[]) AS s"
_READ = "SELECT seq, input FROM raw_items WHERE job_id = %b AND seq >= %b AND seq < %b"
_FENCE = "UPDATE raw_slices SET state = 'done' WHERE job_id = %b AND start = %b AND epoch = 1"
_EXPORT = "COPY (SELECT output FROM raw_results WHERE job_id = %s ORDER BY seq) TO STDOUT"


@contextmanager
def measure_ceiling(url: str, texts: Sequence[str]) -> Iterator[dict[str, Callable[[], float]]]:
    """Yields, by name, functions that process these texts and return the seconds."""
    with (
        ThreadPoolExecutor(_WORKERS) as threads,
        ProcessPoolExecutor(_WORKERS, mp_context=get_context("spawn")) as processes,
    ):
        pools: dict[str, Executor] = {"threads": threads, "processes": processes}
        yield {
            f"{method}_{kind}": partial(_run, url, texts, method, pools[kind])
            for method, kind in product(_WRITERS, pools)
        }


def _run(url: str, texts: Sequence[str], method: str, pool: Executor) -> float:
    job = uuid.uuid4()
    rows = "".join(f"{job}\t{seq}\t{text}\n" for seq, text in enumerate(texts)).encode()
    starts = list(range(0, len(texts), _SLICE_ITEMS))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_DROP)
        connection.execute(_SCHEMA)
        list(pool.map(abs, range(_WORKERS)))  # its workers have started
        since_s = clock.monotonic()
        with connection.transaction():
            with connection.cursor().copy("COPY raw_items FROM STDIN") as copy:
                for since in range(0, len(rows), _CHUNK_BYTES):
                    copy.write(rows[since : since + _CHUNK_BYTES])
            connection.execute(_CUT, [job, starts])
        shares = [starts[worker::_WORKERS] for worker in range(_WORKERS)]
        list(pool.map(partial(_slices, url, method, job), shares))
        with connection.cursor().copy(_EXPORT, [job]) as copy:
            found = b"".join(copy)
        if found.decode().split("\n") != [*texts, ""]:
            raise BenchError("the results in bare SQL are not the inputs")
        took_s = clock.monotonic() - since_s
        connection.execute(_DROP)
    return took_s


def _slices(url: str, method: str, job: uuid.UUID, starts: Sequence[int]) -> None:
    with psycopg.connect(url) as connection:
        for start in starts:
            results = connection.execute(_READ, [job, start, start + _SLICE_ITEMS]).fetchall()
            if connection.execute(_FENCE, [job, start]).rowcount == 1:
                _WRITERS[method](connection.cursor(), job, results)
            connection.commit()


def _copy(cursor: "psycopg.Cursor[Any]", job: uuid.UUID, results: Sequence[Any]) -> None:
    with cursor.copy("COPY raw_results FROM STDIN") as copy:
        copy.write("".join(f"{job}\t{seq}\t{output}\n" for seq, output in results))


def _unnest(cursor: "psycopg.Cursor[Any]", job: uuid.UUID, results: Sequence[Any]) -> None:
    seqs, outputs = zip(*results, strict=True)
    cursor.execute(
        "INSERT INTO raw_results SELECT %b, * FROM unnest(%b::int[], %b::text[])",
        [job, list(seqs), list(outputs)],
    )


_WRITERS: dict[str, Callable[..., None]] = {"copy": _copy, "unnest": _unnest}
