"""Comparison of two jobs' results while they stream in.

Both streams are read in step; a result waits until its counterpart comes. Jobs in the same order
need constant memory; others as much as they are out of order.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Literal

import numpy as np

By = Literal["custom_id", "seq"]
_TEXT_CHARS = 80


@dataclass(frozen=True)
class Tolerance:
    """Bounds: numbers a and b are alike where |a - b| <= atol + rtol * |b|."""

    rtol: float = 0.0
    atol: float = 0.0
    min_cosine: float | None = None  #: vectors with at least this cosine are alike, too


@dataclass
class Diff:
    """Result of a comparison."""

    same: int = 0
    changed: int = 0
    only_a: int = 0
    only_b: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)  #: changes of outcome
    max_abs_diff: float | None = None  #: over all numbers
    min_cosine: float | None = None  #: over all vectors
    shown: list[dict[str, Any]] = field(default_factory=list)  #: first differences

    @property
    def is_same(self) -> bool:
        """True if nothing differs."""
        return not (self.changed or self.only_a or self.only_b)

    def as_json(self) -> dict[str, Any]:
        """Object that `millrace diff --json` prints."""
        return {
            "same": self.same,
            "changed": self.changed,
            "only_a": self.only_a,
            "only_b": self.only_b,
            "outcomes": [
                {"a": a, "b": b, "count": count} for (a, b), count in sorted(self.outcomes.items())
            ],
            "max_abs_diff": self.max_abs_diff,
            "min_cosine": self.min_cosine,
            "differences": self.shown,
        }


def diff(
    a: Iterable[bytes],
    b: Iterable[bytes],
    *,
    by: By | None = None,
    tolerance: Tolerance = Tolerance(),
    show: int = 10,
) -> Diff:
    """Compares result lines.

    by: key of results that belong together; default: custom_id, or seq without one. show: number
    of differences to keep.
    """
    result = Diff()
    for key, one, other in _pairs(a, b, by):
        if one is None or other is None:
            result.only_a += other is None
            result.only_b += one is None
            what = "only_b" if one is None else "only_a"
        elif _is_alike(one, other, tolerance, result):
            result.same += 1
            continue
        else:
            result.changed += 1
            what = "changed"
        if len(result.shown) < show:
            result.shown.append(
                {"what": what, "item": key, "a": _describe(one), "b": _describe(other)}
            )
    return result


Result = dict[str, Any]


def _pairs(
    a: Iterable[bytes], b: Iterable[bytes], by: By | None
) -> Iterator[tuple[str | int, Result | None, Result | None]]:
    waiting: tuple[dict[str | int, bytes], dict[str | int, bytes]] = ({}, {})
    for lines in zip_longest(a, b):
        for side, line in enumerate(lines):
            if line is None:
                continue
            result = json.loads(line)
            key = _key(result, by)
            counterpart = waiting[1 - side].pop(key, None)
            if counterpart is None:
                waiting[side][key] = line
            else:
                other = json.loads(counterpart)
                yield (key, other, result) if side else (key, result, other)
    for key, line in waiting[0].items():
        yield key, json.loads(line), None
    for key, line in waiting[1].items():
        yield key, None, json.loads(line)


def _key(result: Result, by: By | None) -> str | int:
    id = None if by == "seq" else result["custom_id"]
    if id is None and by == "custom_id":
        return f"seq {result['seq']}, without a custom_id"
    key: str | int = result["seq"] if id is None else id
    return key


def _is_alike(a: Result, b: Result, tolerance: Tolerance, result: Diff) -> bool:
    if a["outcome"] != b["outcome"]:
        result.outcomes[a["outcome"], b["outcome"]] += 1
        return False
    if a["outcome"] != "succeeded":
        return _code(a) == _code(b)
    return _equal(a["output"], b["output"], tolerance, result)


def _code(result: Result) -> str | None:
    return (result["error"] or {}).get("code")


def _equal(a: Any, b: Any, tolerance: Tolerance, result: Diff) -> bool:
    if _is_number(a) and _is_number(b):
        try:
            return _arrays_equal(np.array([a]), np.array([b]), tolerance, result)
        except OverflowError:  # no double is that large
            return bool(a == b)
    if isinstance(a, list) and isinstance(b, list):
        one, other = _array(a), _array(b)
        if one is not None and other is not None:
            return one.shape == other.shape and _arrays_equal(one, other, tolerance, result)
        # All of them: each has its part in the largest difference.
        alike = [_equal(x, y, tolerance, result) for x, y in zip(a, b, strict=False)]
        return len(a) == len(b) and all(alike)
    if isinstance(a, dict) and isinstance(b, dict):
        alike = [_equal(a[name], b[name], tolerance, result) for name in a.keys() & b.keys()]
        return a.keys() == b.keys() and all(alike)
    return type(a) is type(b) and bool(a == b)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _array(values: list[Any]) -> Any:
    """Numbers of any shape; None for anything else."""
    try:
        array = np.array(values)
    except ValueError:  # lists of different lengths
        return None
    is_numeric = array.dtype.kind in "iuf" and array.size and not _holds_booleans(values)
    return array if is_numeric else None


def _holds_booleans(values: list[Any]) -> bool:
    """Returns True if booleans stand among numbers: NumPy reads them as 0 and 1."""
    first = values[0]
    if isinstance(first, list):
        return any(_holds_booleans(inner) for inner in values)
    return bool in set(map(type, values))


def _arrays_equal(a: Any, b: Any, tolerance: Tolerance, result: Diff) -> bool:
    equal = bool((a == b).all())  # large integers are alike as doubles before they are equal
    a, b = a.astype(float), b.astype(float)
    with np.errstate(over="ignore"):  # then they are infinitely far apart
        distance = np.abs(a - b)
    result.max_abs_diff = max(result.max_abs_diff or 0.0, float(distance.max()))
    room = tolerance.atol + tolerance.rtol * np.abs(b)
    close = equal or bool(((distance <= room) & (room > 0)).all())
    if a.shape[-1] < 2:
        return close
    cosine = _least_cosine(a, b)
    if cosine is None:
        return close
    result.min_cosine = cosine if result.min_cosine is None else min(result.min_cosine, cosine)
    return close or (tolerance.min_cosine is not None and cosine >= tolerance.min_cosine)


def _least_cosine(a: Any, b: Any) -> float | None:
    """Least cosine of vectors along the last axis; None where a vector is zero."""
    one, other = _directions(a), _directions(b)
    if one is None or other is None:
        return None
    return float(np.clip((one * other).sum(axis=-1), -1.0, 1.0).min())


def _directions(vectors: Any) -> Any:
    """Scales vectors to length 1, at first by their largest number, since squares may overflow.

    None where a vector is zero.
    """
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    if not largest.all():
        return None
    scaled = vectors / largest
    return scaled / np.linalg.norm(scaled, axis=-1, keepdims=True)


def _describe(result: Result | None) -> str | None:
    """Describes a result in a few words."""
    if result is None:
        return None
    if result["outcome"] != "succeeded":
        return " ".join(filter(None, (result["outcome"], _code(result))))
    text = json.dumps(result["output"], ensure_ascii=False)
    return text if len(text) <= _TEXT_CHARS else text[: _TEXT_CHARS - 1] + "…"
