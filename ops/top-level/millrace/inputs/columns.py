"""Columns of tables as JSON values and as ids, for the client and for transfers of jobs.

The types of Parquet and their forms are in the reference of the command line.
"""

from collections.abc import Callable
from itertools import islice
from math import isfinite
from numbers import Integral
from typing import Any

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}  # of the fractions of a second, by unit
_TEXTS = "is_string is_large_string is_string_view"
_BINARY = "is_binary is_large_binary is_fixed_size_binary is_binary_view"
_NO_IDS = (bool, bytes, list, tuple, set, dict)


def json_values(name: str, column: Any) -> list[Any]:
    """Returns the values of an Arrow array as JSON has them. Raises ValueError, which names the
    column."""
    return _converted(_values, name, column)


def ids(name: str, column: Any) -> list[str | None]:
    """Returns the custom_ids of an Arrow array. Raises ValueError as `json_values`."""
    return _converted(_ids, name, column)


def id_of(value: Any) -> str | None:
    """Returns the custom_id that a value of a table stands for; None where it is empty or missing.

    Raises ValueError for a fraction, a truth value, bytes and lists.
    """
    if hasattr(value, "tolist"):  # of NumPy, whose times of nanoseconds become numbers by it
        is_time = value.dtype.kind in "mM" and value == value
        value = str(value) if is_time else value.tolist()
    if type(value).__name__ == "NAType":  # of pandas, which compares it with nothing
        return None
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, _NO_IDS):
        raise ValueError(f"a {type(value).__name__} is no id: give texts or whole numbers")
    if value != value:  # NaN, NaT
        return None
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value!r} is no id: give texts or whole numbers")
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return str(int(value) if isinstance(value, float | Integral) else value)


def _converted(convert: Callable[[Any], list[Any]], name: str, column: Any) -> list[Any]:
    try:
        return convert(column)
    except ValueError as error:
        raise ValueError(f"column {name!r}: {error}") from error


def _ids(column: Any) -> list[str | None]:
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is(column.type, _BINARY):
        import pyarrow

        column = column.cast(pyarrow.string())  # as older writers store texts
    is_float = types.is_floating(column.type)  # NaN is no id, where JSON has none at all
    return [id_of(value) for value in (column.to_pylist() if is_float else _values(column))]


def _values(array: Any) -> list[Any]:
    from pyarrow import types

    kind = array.type
    extension = getattr(kind, "extension_name", "")
    if extension == "arrow.uuid":
        return [None if value is None else str(value) for value in array.to_pylist()]
    if extension == "arrow.json":
        return _values(array.storage)
    if types.is_dictionary(kind):
        return _values(array.dictionary_decode())
    for is_kind, convert in _FORMS:
        if _is(kind, is_kind):
            return convert(array)
    raise ValueError(f"the type {kind} has no form in JSON: write the column as text")


def _is(kind: Any, names: str) -> bool:
    """Returns True for a type that one of these predicates of `pyarrow.types` holds for; an older
    pyarrow lacks some."""
    from pyarrow import types

    return any(getattr(types, name)(kind) for name in names.split() if hasattr(types, name))


def _plain(array: Any) -> list[Any]:
    return array.to_pylist()  # type: ignore[no-any-return]


def _floats(array: Any) -> list[Any]:
    from pyarrow import compute

    values: list[float | None] = array.to_pylist()
    if not compute.all(compute.is_finite(array), min_count=0).as_py():
        wrong = next(value for value in values if value is not None and not isfinite(value))
        shown = "NaN" if wrong != wrong else "Infinity" if wrong > 0 else "-Infinity"
        raise ValueError(f"{shown} is no JSON value: leave the row out, or put null in its place")
    return values


def _dates(array: Any) -> list[Any]:
    """Returns dates, or timestamps in UTC, as in ISO 8601."""
    import pyarrow

    kind, zone = array.type, ""
    if pyarrow.types.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        array = array.view(pyarrow.timestamp(kind.unit))
    texts: list[str | None] = array.cast(pyarrow.string()).to_pylist()
    if any(text is not None and text[4] != "-" for text in texts):
        raise ValueError("the year is none of 0 to 9999: write the column as text")
    return [None if text is None else text.replace(" ", "T") + zone for text in texts]


def _times(array: Any) -> list[Any]:
    import pyarrow

    texts: list[str | None] = array.cast(pyarrow.string()).to_pylist()
    if any(text is not None and not text[0].isdigit() for text in texts):
        raise ValueError("the time is none of a day: write the column as text")
    return texts


def _durations(array: Any) -> list[Any]:
    """Returns durations in seconds, as in ISO 8601: PT1.5S."""
    import pyarrow

    digits = _DIGITS[array.type.unit]

    def shown(count: int) -> str:
        """Returns a number of units."""
        whole, part = divmod(abs(count), 10**digits)
        sign, fraction = "-" if count < 0 else "", f".{part:0{digits}}" if digits else ""
        return f"{sign}PT{whole}{fraction}S"

    counts = array.view(pyarrow.int64()).to_pylist()
    return [None if count is None else shown(count) for count in counts]


def _decimals(array: Any) -> list[Any]:
    return [None if value is None else f"{value:f}" for value in array.to_pylist()]


def _binary(array: Any) -> list[Any]:
    from base64 import b64encode

    return [None if value is None else b64encode(value).decode() for value in array.to_pylist()]


def _lists(array: Any) -> list[Any]:
    from pyarrow import compute

    counts = compute.list_value_length(array).to_pylist()
    left = iter(_values(array.flatten()))
    return [None if count is None else list(islice(left, count)) for count in counts]


def _maps(array: Any) -> list[Any]:
    """Returns objects where the keys are texts, and lists of pairs otherwise."""
    import pyarrow

    kind, types = array.type, pyarrow.types
    pair = pyarrow.struct([("key", kind.key_type), ("value", kind.item_type)])
    maps = [
        None if pairs is None else [(pair["key"], pair["value"]) for pair in pairs]
        for pairs in _lists(array.cast(pyarrow.list_(pair)))
    ]
    keys = kind.key_type.value_type if types.is_dictionary(kind.key_type) else kind.key_type
    if not _is(keys, _TEXTS):
        return maps
    return [None if pairs is None else _object(pairs, "a map has a key") for pairs in maps]


def _structs(array: Any) -> list[Any]:
    names = [field.name for field in array.type]
    _object([(name, None) for name in names], "a struct has a field")
    columns = []
    for name, column in zip(names, array.flatten(), strict=True):
        try:
            columns.append(_values(column))
        except ValueError as error:
            raise ValueError(f"field {name!r}: {error}") from error
    rows = zip(*columns, strict=True) if columns else [()] * len(array)
    found = [dict(zip(names, row, strict=True)) for row in rows]
    valid = array.is_valid().to_pylist()
    return [row if its else None for row, its in zip(found, valid, strict=True)]


def _object(pairs: list[tuple[Any, Any]], what: str) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{what} {twice!r} twice: rename one")
    return found


_FORMS: tuple[tuple[str, Callable[[Any], list[Any]]], ...] = (
    (f"{_TEXTS} is_integer is_boolean is_null", _plain),
    ("is_floating", _floats),
    ("is_date is_timestamp", _dates),
    ("is_time", _times),
    ("is_duration", _durations),
    ("is_decimal", _decimals),
    (_BINARY, _binary),
    ("is_map", _maps),
    ("is_list is_large_list is_fixed_size_list is_list_view is_large_list_view", _lists),
    ("is_struct", _structs),
)
"""Predicates of `pyarrow.types`, and what converts the arrays that one of them holds for."""
