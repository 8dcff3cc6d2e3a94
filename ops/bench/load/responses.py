"""What the answers to calls say, once all of them are there."""

from collections.abc import Sequence
from math import nan
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

OK = (200, 202)  # 202: a job that was taken in

_NUMBERS = ("batch_size", "engine_ms", "predicted_ms", "padding")


def read(
    statuses: Sequence[int], bodies: Sequence[bytes], outputs: Sequence[Any] | None
) -> dict[str, NDArray[Any]]:
    """Columns, a row a call: what its `timing` says (nan where it doesn't), its units, whether it
    was degraded, whether its output is the one expected, and the code of a refusal.

    outputs: of the calls in turn; None: whatever they are, they are right.
    """
    rows = []
    for number, (status, body) in enumerate(zip(statuses, bodies, strict=True)):
        expected = outputs and outputs[number % len(outputs)]
        rows.append(_row(status, body, expected))
    return {
        name: np.array([row[name] for row in rows], dtype=kind) for name, kind in _COLUMNS.items()
    }


_COLUMNS: dict[str, Any] = {
    **dict.fromkeys(_NUMBERS, float),
    "units": float,
    "flush": "U16",
    "degraded": bool,
    "right": bool,
    "code": "U32",
}


def _row(status: int, body: bytes, expected: Any) -> dict[str, Any]:
    answer = _json(body)
    timing = answer.get("timing", {})
    return {
        **{name: timing.get(name, nan) for name in _NUMBERS},
        "units": sum(answer.get("usage", {}).values()) or nan,
        "flush": timing.get("flush", ""),
        "degraded": bool(answer.get("degraded")),
        "right": status in OK and (expected is None or answer.get("output") == expected),
        "code": answer.get("code", ""),
    }


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
