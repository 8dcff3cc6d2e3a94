"""Vectors as bytes, and as the JSON that they were before."""

from typing import Any

import numpy as np
import orjson
import pytest

from jobs import vectors

ROWS = np.random.default_rng(0).standard_normal((5, 7), dtype=np.float32)
EXTREME = np.array([-0.0, 1e-45, 3.4028235e38, 0.1, 1 / 3], dtype=np.float32)


def shown(packed: bytes) -> bytes:
    return vectors.as_json(f"{vectors.MARK}{packed.hex()}")


@pytest.mark.parametrize("kind", ["<f4", ">f4", "<f2", ">f2"])
def test_numbers_are_the_same_in_bytes_and_in_json(kind: str) -> None:
    rows = [*ROWS.astype(kind)]
    packed = vectors.pack_all(rows)
    assert packed is not None
    for row, raw in zip(rows, packed, strict=True):
        assert vectors.numbers(raw).tolist() == row.tolist()
        assert len(raw) == 1 + row.nbytes
        assert shown(raw) == orjson.dumps(row.astype(row.dtype.newbyteorder("=")), option=16)


@pytest.mark.parametrize("row", [EXTREME, ROWS[:, 0], ROWS[0][::-1], ROWS.T[2]])
def test_a_vector_may_lie_in_memory_anyhow(row: Any) -> None:
    [packed] = vectors.pack_all([row]) or []
    assert vectors.numbers(packed).tobytes() == np.ascontiguousarray(row).tobytes()
    assert orjson.loads(shown(packed)) == orjson.loads(vectors.array_json(row.copy()))


@pytest.mark.parametrize(
    "outputs",
    [
        [],
        ["text"],
        [[0.1, 0.2]],
        [ROWS],
        [ROWS[0], ROWS[1][:3]],
        [ROWS[0], ROWS[1].astype(np.float16)],
        [ROWS[0], "text"],
        [ROWS[0], np.array([np.nan] * 7, dtype=np.float32)],
        [np.array([np.inf, 1], dtype=np.float16)],
        [ROWS[0].astype(np.float64)],
        [np.arange(7)],
        [np.float32(1)],
        [ROWS[0][:0]],
        [np.zeros(vectors.MOST_BYTES, dtype=np.float32)],
        [ROWS[0], ValueError("no vector")],
    ],
    ids=range(15),
)
def test_other_outputs_are_not_packed(outputs: list[Any]) -> None:
    assert vectors.pack_all(outputs) is None
