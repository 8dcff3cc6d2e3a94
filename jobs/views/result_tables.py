"""Results as tables: a stream of Arrow, Parquet, or for vectors alone NumPy's own format.

A table has the columns seq, custom_id, outcome, vector, output, error, attempts, units, version,
truncated (of a text that was cut). An output that is a vector is a list of float32 there (each
float16 is one); any other is JSON text.
"""

import io
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import islice
from typing import Any, Literal

from jobs import vectors
from jobs.blobs.payloads import Payloads, resolve_row
from jobs.errors import Conflict, NotConfigured
from jobs.store.jobs.read import ResultRow

Format = Literal["ndjson", "arrow", "parquet", "npy"]

MEDIA_TYPES: dict[Format, str] = {
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
    "npy": "application/x-npy",
}
_ROWS = 1000  # of a batch


def choose(asked: Format | None, accept: str) -> Format:
    """Returns the format that was asked for, else the first that an Accept header names."""
    if asked:
        return asked
    named = [one.partition(";")[0].strip().lower() for one in accept.split(",")]
    return next(
        (kind for name in named for kind, its in MEDIA_TYPES.items() if its == name), "ndjson"
    )


def table(
    kind: Format, rows: Iterator[ResultRow], payloads: Payloads
) -> Generator[bytes, None, None]:
    """Yields a table in Arrow's stream format, or as Parquet.

    Raises NotConfigured where pyarrow isn't installed, before it begins; BlobStoreUnavailable and
    Conflict end it visibly.
    """
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ImportError as error:
        message = f"{kind} needs pyarrow in the api: install millrace[parquet], or ask for ndjson"
        raise NotConfigured(message) from error
    schema = _schema(pyarrow)
    pipe = _Pipe()
    open_writer: Callable[..., Any] = ipc.new_stream if kind == "arrow" else parquet.ParquetWriter
    return _batches(pyarrow, schema, pipe, open_writer(pipe, schema), rows, payloads)


def _schema(pyarrow: Any) -> Any:
    field, text = pyarrow.field, pyarrow.string()
    return pyarrow.schema(
        [
            field("seq", pyarrow.int32(), nullable=False),
            field("custom_id", text),
            field("outcome", text, nullable=False),
            field("vector", pyarrow.list_(pyarrow.float32())),
            field("output", text),
            field("error", text),
            field("attempts", pyarrow.int32(), nullable=False),
            field("units", pyarrow.int32(), nullable=False),
            field("version", text),
            field("truncated", pyarrow.int32()),
        ]
    )


def _batches(
    pyarrow: Any, schema: Any, pipe: "_Pipe", writer: Any, rows: Iterator[ResultRow],
    payloads: Payloads,
) -> Generator[bytes, None, None]:  # fmt: skip
    while some := list(islice(rows, _ROWS)):
        writer.write_batch(_batch(pyarrow, schema, some, payloads))
        yield pipe.take()
    writer.close()
    yield pipe.take()


def _batch(pyarrow: Any, schema: Any, rows: Sequence[ResultRow], payloads: Payloads) -> Any:
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for row in rows:
        vector = _vector(row)
        output = None if vector is not None else row.output
        shown = {"outcome": row.outcome, "output": output, "error": row.error}
        opened = resolve_row(payloads, shown)
        of_row = {name: getattr(row, name, None) for name in columns}
        for name, value in {**of_row, **opened, "vector": vector}.items():
            columns[name].append(value.decode() if isinstance(value, bytes) else value)
    return pyarrow.record_batch(
        [pyarrow.array(columns[field.name], field.type) for field in schema], schema=schema
    )


def _vector(row: ResultRow) -> Any:
    """Returns the numbers of an output that is a vector, [n]; None for any other."""
    if row.output is None or not row.output.startswith(vectors.MARK):
        return None
    return vectors.numbers(vectors.from_text(row.output)).astype("<f4", copy=False)


def array(rows: Iterator[ResultRow], count: int) -> Generator[bytes, None, None]:
    """Yields vectors as one array in NumPy's format, [count, n]: row i is result i of those read;
    [0, 0] where there is none.

    Raises Conflict where the first result is no vector, before it begins; a later one that is none,
    or has another type or length, ends it visibly.
    """
    first = next(rows, None)
    return _array(_packed(first) if first else b"f", rows, count)


def _array(first: bytes, rows: Iterator[ResultRow], count: int) -> Generator[bytes, None, None]:
    yield _header(vectors.numbers(first), count) + first[1:]
    while some := list(islice(rows, _ROWS)):
        yield b"".join([_packed(row, like=first)[1:] for row in some])


def _header(numbers: Any, count: int) -> bytes:
    from numpy.lib import format

    shape, out = (count, len(numbers)), io.BytesIO()
    format.write_array_header_1_0(
        out, {"descr": numbers.dtype.str, "fortran_order": False, "shape": shape}
    )
    return out.getvalue()


def _packed(row: ResultRow, like: bytes = b"") -> bytes:
    """Returns a packed vector, of the type and length of another one. Raises Conflict."""
    if row.output and row.output.startswith(vectors.MARK):
        packed = vectors.from_text(row.output)
        if not like or (len(packed), packed[0]) == (len(like), like[0]):
            return packed
    raise Conflict(
        f"the result of item {row.seq} ({row.outcome}) is no vector of float16 or float32 as those "
        "before it; ask for format=arrow, which takes any result"
    )


class _Pipe:
    """File that a writer of pyarrow fills, and that is emptied meanwhile."""

    closed = False

    def __init__(self) -> None:
        self._pieces, self._at = list[bytes](), 0

    def writable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """Returns the number of bytes that were written."""
        return self._at

    def write(self, data: Any) -> int:
        """Takes bytes."""
        self._pieces.append(bytes(data))
        self._at += len(data)
        return len(data)

    def flush(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""

    def take(self) -> bytes:
        """Returns what was written since the last time."""
        taken, self._pieces = b"".join(self._pieces), []
        return taken
