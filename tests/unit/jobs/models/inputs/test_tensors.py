"""Tensors: what is one, what is none and why, and that nothing is lost on the way to an array and
back."""

import re
from contextlib import suppress
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from jobs.models import models_file
from jobs.models.builtin_models import SAMPLES
from jobs.models.engines.builtin_engines import TensorOptions
from jobs.models.inputs import signature, tensor_inputs, tensors
from jobs.models.inputs.signature import Signature, Spec
from jobs.models.inputs.tensors import BYTES, DTYPES, Tensor, TensorError, shape_of
from jobs.settings import SettingsError
from tests.support.cases import each
from tests.support.json_values import json_values

SHAPES = arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
NUMBERS = [name for name in DTYPES if name != BYTES]


@st.composite
def numeric(draw: st.DrawFn) -> tuple[str, np.ndarray[Any, Any]]:
    datatype = draw(st.sampled_from(NUMBERS))
    return datatype, draw(arrays.arrays(DTYPES[datatype], SHAPES))


@st.composite
def of_bytes(draw: st.DrawFn) -> tuple[str, np.ndarray[Any, Any]]:
    array = draw(arrays.arrays(object, SHAPES, elements=st.binary(max_size=5)))
    return BYTES, array


ANY = numeric() | of_bytes()


def same(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    return one.shape == other.shape and one.tobytes() == other.tobytes()


@given(ANY)
def test_an_array_comes_back_as_it_was(made: tuple[str, np.ndarray[Any, Any]]) -> None:
    datatype, array = made
    tensor = Tensor.from_array(datatype, array)
    again = Tensor.from_bytes(datatype, tensor.shape, tensor.raw)
    assert again == tensor
    if datatype == BYTES:
        assert again.array().tolist() == array.tolist()
    else:
        assert same(again.array(), array)


@given(ANY, st.booleans())
def test_a_tensor_comes_back_from_json_whatever_it_holds(
    made: tuple[str, np.ndarray[Any, Any]], plain: bool
) -> None:
    """NaN, infinities and bytes that are no text go as base64."""
    tensor = Tensor.from_array(*made)
    said = orjson.loads(orjson.dumps(tensor.as_json(plain=plain)))
    assert "base64" in said or plain
    assert tensors.output(said) == tensor


@given(st.sampled_from(list(DTYPES)), SHAPES, st.binary(max_size=64))
def test_any_bytes_fill_a_shape_or_are_refused(
    datatype: str, shape: tuple[int, ...], raw: bytes
) -> None:
    with suppress(TensorError):
        assert Tensor.from_bytes(datatype, shape, raw).array().shape == shape


@given(st.sampled_from([*DTYPES, "BF16", "x"]), SHAPES, json_values)
def test_any_json_is_data_or_is_refused(datatype: str, shape: tuple[int, ...], data: Any) -> None:
    with suppress(TensorError):
        tensor = Tensor.from_data(datatype, shape, data)
        assert tensor.array().shape == shape
        assert tensors.output(tensor.as_json()) == tensor


@given(json_values | st.lists(st.integers()))
def test_a_shape_is_whole_numbers_that_may_be(value: Any) -> None:
    try:
        assert list(shape_of(value)) == value
    except TensorError:
        good = isinstance(value, list) and all(
            type(size) is int and 0 <= size < 2**31 for size in value
        )
        assert not good or len(value) > 32


def test_what_is_wrong_with_data_is_said() -> None:
    cases = [
        ("INT8", [128, 0], "-128 to 127"),
        ("UINT64", [-1, 0], "0 to 18,446,744,073,709,551,615"),
        ("INT32", [1.5, 0], "a fraction"),
        ("INT32", [True, 0], "a boolean where a number belongs"),
        ("FP16", [1e6, 0], "reaches 6.55e+04"),
        ("FP32", [1e39, 0], "out of range"),
        ("FP64", [10**400, 0], "out of range"),
        ("FP32", ["1", 0], "a text where a number belongs"),
        ("BOOL", [1, 0], "a number where true or false belongs"),
        (BYTES, [1, 0], "a number where a text belongs"),
        (BYTES, ["\ud800", ""], "lone surrogate"),
        ("BF16", [1, 0], "BF16, which is not served"),
        ("FP8", [1, 0], "there are: BOOL"),
        ("INT32", [1], "has 1 elements; the shape [2] has 2"),
        ("INT32", {"0": 1}, "must be a list"),
        ("INT32", [1, [2]], "a list where a number belongs"),
        ("INT32", [[1, 2]], "nested data must have the shape [2]"),
    ]
    for (datatype, data, said), case in each(cases):
        with case, pytest.raises(TensorError, match=re.escape(said)):
            Tensor.from_data(datatype, (2,), data)


def test_data_is_flat_or_nested_and_an_array_of_any_layout_but_of_the_declared_type() -> None:
    flat = Tensor.from_data("INT32", (2, 3), [1, 2, 3, 4, 5, 6])
    assert Tensor.from_data("INT32", (2, 3), [[1, 2, 3], [4, 5, 6]]) == flat
    assert Tensor.from_data("INT32", (2, 3), [1.0, 2, 3, 4, 5, 6]) == flat
    with pytest.raises(TensorError, match=r"shape \[2, 3\]"):
        Tensor.from_data("INT32", (2, 3), [[1, 2], [3, 4], [5, 6]])
    array = np.arange(6, dtype=np.int32).reshape(2, 3).T
    assert same(Tensor.from_array("INT32", array).array(), np.ascontiguousarray(array))
    with pytest.raises(TensorError, match="int64; INT32 is int32"):
        Tensor.from_array("INT32", np.zeros(2, np.int64))
    with pytest.raises(TensorError, match="a number where a text belongs"):
        Tensor.from_array(BYTES, np.zeros(2, object))


def test_what_is_wrong_with_bytes_is_said() -> None:
    cases = [
        ("INT32", b"\0" * 7, "has 7 bytes; INT32 [2] has 8"),
        ("BOOL", b"\1\2", "byte 0 or 1"),
        (BYTES, b"\1\0\0\0a", "has 1 elements"),
        (BYTES, bytes(12), "has more; the shape [2] has 2"),
        (BYTES, b"\1\0\0\0a\xff\xff\xff\xffb", "ends within an element"),
        (BYTES, b"\1\0\0\0a\0\0", "ends within an element"),
        ("BF16", b"\0" * 4, "BF16"),
    ]
    for (datatype, raw, said), case in each(cases):
        with case, pytest.raises(TensorError, match=re.escape(said)):
            Tensor.from_bytes(datatype, (2,), raw)
    with pytest.raises(TensorError, match="has 1 elements"):  # more than any memory could hold
        Tensor.from_bytes(BYTES, (2**31 - 1,) * 3, bytes(4))


TWO = Signature(
    {"a": Spec("a", "INT32", (-1, 2)), "b": Spec("b", "FP32", (-1, -1))},
    {"c": Spec("c", "INT32", (-1,)), "d": Spec("d", "INT32", (-1,))},
    most_rows=3,
)
SHAPED = {"datatype": "INT32", "shape": [1, 2]}
A = {**SHAPED, "data": [1, 2]}
B = {"datatype": "FP32", "shape": [1, 1], "data": [1]}


def rows(count: int) -> dict[str, Any]:
    return {"a": {**A, "shape": [count, 2], "data": [0] * 2 * count},
            "b": {**B, "shape": [count, 1], "data": [0] * count}}  # fmt: skip


def test_an_input_is_read_whole_and_has_as_many_rows_as_a_launch_takes() -> None:
    asked = signature.read({"inputs": {"b": B, "a": A}, "outputs": ["d"]}, TWO)
    assert (asked.rows, asked.outputs, asked.plain) == (1, ["d"], True)
    assert asked.tensors["a"].array().tolist() == [[1, 2]]
    in_base64 = {**SHAPED, "base64": "AQAAAAIAAAA="}
    again = signature.read({"inputs": {"a": in_base64, "b": B}}, TWO)
    assert (again.tensors["a"], again.plain) == (asked.tensors["a"], False)
    assert again.outputs == ["c", "d"]
    assert signature.read({"inputs": rows(3)}, TWO).rows == 3
    for count, said in ((0, "one at least"), (4, "takes 3 at a time")):
        with pytest.raises(TensorError, match=said):
            signature.read({"inputs": rows(count)}, TWO)
    assert tensor_inputs.signature(SAMPLES.resolve("simple")).most_rows == 256
    assert tensor_inputs.most_rows(SAMPLES.resolve("batchstring")) == 100


def test_what_is_wrong_with_an_input_is_said() -> None:
    cases = [
        ("text", "the input must be"),
        ({"inputs": []}, "the input must be"),
        ({"inputs": {"a": A, "b": B}, "more": 1}, "unknown key 'more'"),
        ({"inputs": {"a": A}}, "b missing"),
        ({"inputs": {}}, "a, b missing"),
        ({"inputs": {"a": A, "b": B, "x": B}}, "no input 'x'; there are: a, b"),
        ({"inputs": {"a": A, "b": 1}}, "b: must have datatype"),
        ({"inputs": {"a": A, "b": {**B, "base64": ""}}}, "either data or base64"),
        ({"inputs": {"a": A, "b": {**B, "shape": "1"}}}, "b: shape must be a list"),
        ({"inputs": {"a": A, "b": {**B, "shape": [-1, 1]}}}, "b: shape must have"),
        ({"inputs": {"a": A, "b": {**B, "shape": [1] * 40}}}, "up to 32"),
        ({"inputs": {"a": A, "b": {**B, "shape": [2**31]}}}, "2,147,483,647"),
        ({"inputs": {"a": A, "b": {**B, "shape": [1, 2, 3]}}}, "not [-1, -1]"),
        ({"inputs": {"a": A, "b": {**B, "datatype": "FP64"}}}, "not FP32"),
        ({"inputs": {"a": A, "b": {**B, "datatype": []}}}, "not FP32"),
        ({"inputs": {"a": A, "b": {**B, "shape": [2, 1], "data": [1, 2]}}}, "as many rows"),
        ({"inputs": {"a": A, "b": B}, "outputs": []}, "outputs must be a list"),
        ({"inputs": {"a": A, "b": B}, "outputs": ["x"]}, "no output 'x'; there are: c, d"),
        ({"inputs": {"a": A, "b": B}, "outputs": [{}]}, "no output an object"),
        ({"inputs": {"a": {**A, "data": [1]}, "b": B}}, "a: has 1 elements"),
        ({"inputs": {"a": {**SHAPED, "base64": "*"}, "b": B}}, "a: base64 can't be read"),
    ]
    for (value, said), case in each(cases):
        with case, pytest.raises(TensorError, match=re.escape(said)):
            signature.read(value, TWO)


@given(json_values)
def test_any_json_is_an_input_or_is_refused(value: Any) -> None:
    for asked in (value, {"inputs": value}, {"inputs": {"a": value, "b": B}}):
        with pytest.raises(TensorError):
            signature.read(asked, TWO)


GOOD = {"name": "x", "datatype": "INT32", "shape": [-1, 2]}


def declared(**options: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        models_file.read_table(TensorOptions, options, "options")
    return caught.value.problems


def test_what_is_wrong_with_a_declaration_is_said() -> None:
    cases = [
        ({"name": "x", "datatype": "INT8"}, "number 1.shape is missing: a list"),
        ({**GOOD, "more": 1}, "unknown key 'more' in options.outputs number 1; there are: name, d"),
        ({**GOOD, "name": ""}, "number 1.name must have at least 1 character"),
        ({**GOOD, "datatype": "INT"}, ".datatype: must be a datatype: BOOL, UINT8"),
        ({**GOOD, "datatype": []}, ".datatype must be a valid string"),
        ({**GOOD, "shape": [1, 2]}, "begin with -1"),
        ({**GOOD, "shape": []}, "begin with -1"),
        ({**GOOD, "shape": [-1, 0]}, "whole numbers"),
        ({**GOOD, "shape": [-1, 1.5]}, "whole numbers"),
        ({**GOOD, "shape": [-1] * 33}, "at most 32"),
        ("x", " must be a table"),
    ]
    for (entry, said), case in each(cases):
        with case:
            [problem] = declared(inputs=[GOOD], outputs=[entry])
            assert "options.outputs number 1" in problem
            assert said in problem
    models_file.read_table(TensorOptions, {"inputs": [GOOD], "outputs": [GOOD], "function": "a:b"})
    assert declared(inputs=[GOOD, GOOD]) == [
        "options.inputs: 'x' is declared twice",
        "options.outputs is missing: a list of { name, datatype, shape }",
    ]
