"""Fields of the responses to calls, read once all of them have arrived."""

from collections.abc import Sequence
from math import nan
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

_OK = (200, 202)  # 202: an accepted job
_NUMBERS = ("batch_size", "engine_ms", "predicted_ms", "padding")
_TYPES: dict[str, Any] = {
    **dict.fromkeys((*_NUMBERS, "units"), float),
    **dict.fromkeys(("degraded", "right"), bool),
    "flush": "U16",
    "code": "U32",
    "job": "U40",
}


def columns(
    statuses: Sequence[int], bodies: Sequence[bytes], outputs: Sequence[Any] | None
) -> dict[str, NDArray[Any]]:
    """Columns with a row a call: `timing` (nan where absent), units, `degraded`, `right` (the
    output is the expected one), the code of an error, the id of a job.

    outputs: expected ones, taken in turn; None: any.
    """
    rows = [
        _row(status, body, outputs and outputs[number % len(outputs)])
        for number, (status, body) in enumerate(zip(statuses, bodies, strict=True))
    ]
    return {name: np.array([row[name] for row in rows], dtype=t) for name, t in _TYPES.items()}


def _row(status: int, body: bytes, expected: Any) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    response = found if isinstance(found, dict) else {}
    timing = response.get("timing", {})
    return {
        **{name: timing.get(name, nan) for name in _NUMBERS},
        "units": sum(response.get("usage", {}).values()) or nan,
        "flush": timing.get("flush", ""),
        "degraded": bool(response.get("degraded")),
        "right": status in _OK and (expected is None or response.get("output") == expected),
        "code": response.get("code", ""),
        "job": response.get("id", ""),
    }
