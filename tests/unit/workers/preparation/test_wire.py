"""Prepared inputs as bytes: every kind of data comes back as it was; preparation as an engine."""

import json
import math
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.models.model import Model, PreparationModel
from tests.support.cases import each
from workers.engines import registry
from workers.engines.protocol import Prepared, Preparer
from workers.preparation.engine import PreparationEngine
from workers.preparation.wire import PreparedItem, Unreadable, Unsendable, dumps, loads


def sent(data: Any) -> Any:
    [one] = loads(dumps(PreparedItem([Prepared(3, data)]))).inputs
    assert one.size == 3
    return one.data


def test_values_come_back_with_their_types() -> None:
    values = [None, True, 0, 2**80, -1.5, "text", "\ud800", "", b"\0\xff", [], (), {}]
    deep = [[1, [2, (3, "x")]], {"l": ["l", "a"], "image": b"x" * 1000, "": {"d": 1}}]
    for data, case in each([*values, *deep, np.float32(1.5), [math.inf]], name=ascii):
        with case:
            back = sent(data)
            assert back == data
            assert type(back) is type(data)
    assert math.isnan(sent(math.nan))


def test_arrays_come_back_from_any_layout() -> None:
    types = ("bool", "uint8", "int32", "int64", "float16", "float32", "float64", "complex64")
    shapes: list[tuple[int, ...]] = [(), (0,), (5,), (2, 3, 4), (0, 7)]
    for (dtype, shape), case in each(product(types, shapes)):
        with case:
            array = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
            back = sent({"pixels": array})["pixels"]
            assert (back.dtype, back.shape) == (array.dtype, array.shape)
            assert (back == array).all()
    array = np.arange(24, dtype=">i4").reshape(4, 6).T[::2]
    back = sent(array)
    assert back.dtype == np.dtype("<i4")
    assert (back == array).all()


def test_the_inputs_of_a_list_stay_together() -> None:
    inputs = [Prepared(1, np.int32([1])), Prepared(2, np.int32([2, 3]), truncated=5)]
    back = loads(dumps(PreparedItem(inputs, is_list=True)))
    assert (back.is_list, [one.truncated for one in back.inputs]) == (True, [0, 5])
    assert [(one.size, one.data.tolist()) for one in back.inputs] == [(1, [1]), (2, [2, 3])]


def test_nothing_else_is_sent() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    ring: dict[str, Any] = {}
    ring["ring"] = ring
    others = [date(2020, 1, 1), {1: "x"}, {"x"}, object(), np.array(["x"]), np.array([object()])]
    for data, case in each([*others, deep, ring], name=type):
        with case, pytest.raises(Unsendable, match="can't be sent"):
            sent(data)
    with pytest.raises(Unsendable, match="64 MiB at most"):
        dumps(PreparedItem([Prepared(1, np.zeros(33 << 20, np.uint8))] * 2, is_list=True))


@pytest.mark.parametrize("cut", [0, 3, 7, 20, -1])
def test_broken_bytes_are_refused(cut: int) -> None:
    raw = dumps(PreparedItem([Prepared(3, [np.arange(10), b"abc"])]))
    with pytest.raises(Unreadable):
        loads(raw[:cut])


@pytest.mark.parametrize("written", [["a", "|O", [1], 8], ["x"], ["a", "<i4", [3], 4], ["b", -1]])
def test_heads_that_no_sender_writes_are_refused(written: Any) -> None:
    head = json.dumps({"list": False, "inputs": [[1, written]]}).encode()
    with pytest.raises(Unreadable):
        loads(b"MRP1" + len(head).to_bytes(4, "little") + head + bytes(16))


CODE = "def prepare(value):\n    return value\n\n\ndef predict(batch):\n    return batch\n"


@pytest.mark.parametrize("engine", ["minilm", "image_classifier", "python"])
def test_it_closes_what_prepares(
    engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "code.py").write_text(CODE)
    options = {"file": str(tmp_path / "code.py")} if engine == "python" else {}
    made: list[Preparer] = []
    load = registry.load_preparer

    def watched(model: Model) -> Preparer:
        made.append(load(model))
        return made[0]

    monkeypatch.setattr(registry, "load_preparer", watched)
    base = Model("m", "1", engine, prepare="pool", options=options)  # type: ignore[arg-type]
    prepares = PreparationEngine(PreparationModel.create(base))
    closed: list[bool] = []
    close = made[0].close
    monkeypatch.setattr(made[0], "close", lambda: (closed.append(True), close()))
    prepares.close()
    assert closed == [True]
