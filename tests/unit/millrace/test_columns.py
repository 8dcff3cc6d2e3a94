"""Columns of Parquet in JSON: each type has a form, or is refused with its column and row."""

import io
import json
import math
import re
import uuid
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from millrace import InputError
from millrace.inputs.columns import id_of, ids, json_values
from millrace.inputs.files import Input
from tests.support.cases import each

_I64 = pyarrow.int64()
_PAIRS = pyarrow.map_(pyarrow.string(), _I64)
_STRUCT = pyarrow.struct([("a", pyarrow.float64()), ("b", pyarrow.list_(pyarrow.binary()))])
NAN, INFINITY = math.nan, math.inf


def of(kind: pyarrow.DataType, *counts: int | None) -> pyarrow.Array:
    """An array of a temporal type, by the numbers that it has in memory."""
    width = pyarrow.int32() if kind.bit_width == 32 else _I64
    return pyarrow.array(counts, width).view(kind)


def twice() -> pyarrow.Array:
    return pyarrow.StructArray.from_arrays([pyarrow.array([1]), pyarrow.array([2])], ["a", "a"])


FORMS: list[tuple[pyarrow.Array, list[Any]]] = [
    (of(pyarrow.timestamp("ns"), 1704164645678901234, None),
     ["2024-01-02T03:04:05.678901234", None]),
    (of(pyarrow.timestamp("us", "Europe/Berlin"), -1), ["1969-12-31T23:59:59.999999Z"]),
    (of(pyarrow.timestamp("ms"), 1), ["1970-01-01T00:00:00.001"]),
    (of(pyarrow.timestamp("s", "UTC"), 253402300799), ["9999-12-31T23:59:59Z"]),
    (of(pyarrow.date32(), 19724, None), ["2024-01-02", None]),
    (of(pyarrow.date64(), 86_400_000), ["1970-01-02"]),
    (of(pyarrow.time32("s"), 3661), ["01:01:01"]),
    (of(pyarrow.time64("ns"), 1, None), ["00:00:00.000000001", None]),
    (of(pyarrow.duration("ns"), 90_000_000_001, None), ["PT90.000000001S", None]),
    (of(pyarrow.duration("ms"), -1500), ["-PT1.500S"]),
    (of(pyarrow.duration("s"), 60), ["PT60S"]),
    (pyarrow.array([Decimal("1.50"), None]), ["1.50", None]),
    (pyarrow.array([Decimal("1E-10")], pyarrow.decimal128(20, 12)), ["0.000000000100"]),
    (pyarrow.array([b"\xff\x00", None]), ["/wA=", None]),
    (pyarrow.array([b"ab"], pyarrow.binary(2)), ["YWI="]),
    (pyarrow.array(["x", None, "x"]).dictionary_encode(), ["x", None, "x"]),
    (pyarrow.array([[("a", 1), ("b", None)], None, []], _PAIRS), [{"a": 1, "b": None}, None, {}]),
    (pyarrow.array([[(1, 2)]], pyarrow.map_(_I64, _I64)), [[[1, 2]]]),
    (pyarrow.array([[("a", 1)]], pyarrow.map_(pyarrow.string_view(), _I64)), [{"a": 1}]),
    (pyarrow.array([[1, 2], None, [3, 4]], pyarrow.list_(_I64, 2)), [[1, 2], None, [3, 4]]),
    (pyarrow.array([[[1]], [], [None, []]]), [[[1]], [], [None, []]]),
    (pyarrow.array([{"a": 0.5, "b": [b"a"]}, None], _STRUCT), [{"a": 0.5, "b": ["YQ=="]}, None]),
    (pyarrow.array([{}, None], pyarrow.struct([])), [{}, None]),
    (pyarrow.array([2**64 - 1, 0], pyarrow.uint64()), [2**64 - 1, 0]),
    (pyarrow.array([True, None]), [True, None]),
    (pyarrow.array([None]), [None]),
    (pyarrow.array([uuid.UUID(int=1), None], pyarrow.uuid()), [str(uuid.UUID(int=1)), None]),
    (pyarrow.array(['{"a": 1}'], pyarrow.json_()), ['{"a": 1}']),
]  # fmt: skip

REFUSED: list[tuple[pyarrow.Array, str]] = [
    (pyarrow.array([1.0, None, NAN]), "NaN is no JSON value"),
    (pyarrow.array([INFINITY]), "Infinity is no"),
    (pyarrow.array([-INFINITY], pyarrow.float32()), "-Infinity is no"),
    (pyarrow.array([NAN], pyarrow.float16()), "NaN"),
    (pyarrow.array([[1.0], None, [2.0, NAN]]), "NaN"),
    (pyarrow.array([{"a": 1.0}, {"a": NAN}], _STRUCT), "field 'a': NaN"),
    (pyarrow.array([[("a", NAN)]], pyarrow.map_(pyarrow.string(), pyarrow.float64())), "NaN is"),
    (pyarrow.array([0.5, NAN]).dictionary_encode(), "NaN"),
    (of(pyarrow.date32(), 1, 3_000_000), "the year is none of 0 to 9999"),
    (of(pyarrow.timestamp("s"), 1, 253402300800), "the year is none of 0 to 9999"),
    (twice(), "a struct has a field 'a' twice"),
    (pyarrow.array([[("a", 1), ("a", 2)]], _PAIRS), "a map has a key 'a' twice"),
    (pyarrow.array([None], pyarrow.month_day_nano_interval()), "interval has no form"),
    (pyarrow.array([1], pyarrow.bool8()), "bool8> has no form"),
    (of(pyarrow.time32("s"), 1, 1_000_000), "the time is none of a day"),
]  # fmt: skip


def test_each_type_has_its_form_also_in_a_part_of_a_column() -> None:
    for (array, wanted), case in each(FORMS, lambda one: one[0].type):
        with case:
            assert json.loads(json.dumps(json_values("c", array))) == wanted
            assert json_values("c", array.slice(1)) == json_values("c", array)[1:]
            assert json_values("c", array.slice(0, 0)) == []


def test_what_has_no_form_is_refused_with_its_column() -> None:
    for (array, why), case in each(REFUSED, lambda one: one[1]):
        with case, pytest.raises(ValueError, match=re.escape(why)) as found:
            json_values("the 'c'", array)
        with case:
            assert str(found.value).startswith("""column "the 'c'": """)


def test_ids_are_texts_or_whole_numbers() -> None:
    kinds: list[tuple[pyarrow.Array, list[str | None]]] = [
        (pyarrow.array([1.0, None, NAN, -0.0]), ["1", None, None, "0"]),
        (pyarrow.array([1.0, NAN, 1.0]).dictionary_encode(), ["1", None, "1"]),
        (pyarrow.array([2**63 - 1, 0]), [str(2**63 - 1), "0"]),
        (pyarrow.array(["a", "", None, "NA"]), ["a", None, None, "NA"]),
        (of(pyarrow.date32(), 1), ["1970-01-02"]),
        (pyarrow.array([b"a1", b"", None]), ["a1", None, None]),  # as older writers store texts
    ]
    for (array, wanted), case in each(kinds, lambda one: one[1]):
        with case:
            assert ids("id", array) == wanted
    for array, why in (
        (pyarrow.array([1.0, 1.5]), "column 'id': 1.5 is no id"),
        (pyarrow.array([INFINITY]), "column 'id': inf is no id"),
        (pyarrow.array([[1]]), "column 'id': a list is no id"),
        (pyarrow.array([None, True]), "column 'id': a bool is no id"),
        (pyarrow.array([b"a", b"\xff"]), "column 'id': "),
    ):
        with pytest.raises(ValueError, match=re.escape(why)):
            ids("id", array)
    id = uuid.uuid4()
    missing = type("NAType", (), {"__eq__": lambda *_: missing, "__bool__": lambda _: 1 / 0})()
    assert [id_of(one) for one in (id, missing, Decimal("NaN"))] == [str(id), None, None]
    second = "2020-01-01T00:00:01"
    times = datetime.fromisoformat(second), np.datetime64(second, "s"), np.datetime64("NaT")
    assert [id_of(one) for one in times] == [second, second, None]
    assert id_of(np.datetime64(second, "ns")) == f"{second}.000000000"


def test_the_client_reads_them_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"

    def lines(**columns: Any) -> list[Any]:
        out = io.BytesIO()
        parquet.write_table(pyarrow.table(columns), out, row_group_size=2)
        path.write_bytes(out.getvalue())
        given = Input(str(path), "parquet", "c", "id" if "id" in columns else "")
        return [json.loads(line) for line in given.lines()]

    assert lines(c=of(pyarrow.timestamp("ns"), 1)) == ["1970-01-01T00:00:00.000000001"]
    assert lines(c=["x", "y"], id=[1.0, None]) == [{"custom_id": "1", "input": "x"}, "y"]
    assert lines(c=[{"input": 1}]) == [{"input": {"input": 1}}], "an input, no item"
    numbers = [*[0.0] * 1500, NAN]
    with pytest.raises(InputError, match=r"a\.parquet, row 1501: column 'c': NaN"):
        lines(c=numbers)
    with pytest.raises(InputError, match=r"a\.parquet, row 1: column 'id': 0\.5 is no id"):
        lines(c=["x"], id=[0.5])
    with pytest.raises(InputError, match="a struct has a field 'a' twice"):
        lines(c=twice())
