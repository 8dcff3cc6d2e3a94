"""The `tensors` engine: rows of many requests are one launch, and each gets its own back."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor as TorchTensor
from torch import nn

from jobs.models.builtin_models import SAMPLES
from jobs.models.inputs import signature, tensors
from jobs.models.inputs.tensors import Tensor
from jobs.models.model import Limits, Model
from tests.support.cases import each
from workers.engines import registry
from workers.engines.classifier import RandomClassifier
from workers.engines.protocol import Engine, InvalidInput
from workers.engines.tensors import TensorEngine
from workers.items.results import encode

pytestmark = pytest.mark.heavy

Arrays = Mapping[str, NDArray[Any]]
calls: list[dict[str, tuple[int, ...]]] = []


def twice(arrays: Arrays) -> dict[str, NDArray[Any]]:
    calls.append({name: array.shape for name, array in arrays.items()})
    return {"y": arrays["x"] * 2}


def in_place(arrays: Arrays) -> dict[str, NDArray[Any]]:
    arrays["x"][:] *= 2
    return {"y": arrays["x"]}


def wrong_rows(arrays: Arrays) -> dict[str, NDArray[Any]]:
    return {"y": arrays["x"][:1]}


def wrong_type(arrays: Arrays) -> dict[str, NDArray[Any]]:
    return {"y": arrays["x"].astype(np.int64)}


def wrong_shape(arrays: Arrays) -> dict[str, NDArray[Any]]:
    return {"y": arrays["x"][:, :, None]}


def scalar(arrays: Arrays) -> dict[str, NDArray[Any]]:
    return {"y": arrays["x"].sum()}


def nothing(arrays: Arrays) -> dict[str, NDArray[Any]]:
    return {}


class Halves(nn.Module):
    """Three ways to return two outputs."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: TorchTensor) -> Any:
        low, high = x // 2, x - x // 2
        return {"tuple": (low, high), "dict": {"high": high, "low": low}, "one": low}[self.form]


def of(shape: Sequence[int], name: str, datatype: str = "INT32") -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape)}


def made(function: str, **more: Any) -> TensorEngine:
    path = f"{__name__}:{function}"
    declared = {"inputs": [of([-1, -1], "x")], "outputs": [of([-1, -1], "y")], **more}
    return TensorEngine(function=path, **declared)


def asked(array: Any, name: str = "x", datatype: str = "INT32", **more: Any) -> dict[str, Any]:
    tensor = Tensor.from_array(datatype, np.asarray(array, tensors.DTYPES[datatype]))
    return {"inputs": {name: tensor.as_json()}, **more}


def run(engine: Engine, inputs: Sequence[Any]) -> list[dict[str, Any]]:
    """What a client would read, as arrays."""
    batch = [one.data for one in engine.prepare(inputs, {})]
    said = [orjson.loads(encode(output)) for output in engine.run(batch, {})]
    return [{name: tensors.output(its).array() for name, its in one.items()} for one in said]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=8))
def test_each_gets_its_own_rows_whatever_shares_its_launch(shapes: list[tuple[int, int]]) -> None:
    """Rows that are alike are joined; what can't be joined runs apart."""
    arrays = [np.random.randint(-9, 9, shape).astype(np.int32) for shape in shapes]
    calls.clear()
    found = run(made("twice"), [asked(array) for array in arrays])
    for array, outputs in zip(arrays, found, strict=True):
        assert np.array_equal(outputs["y"], array * 2)
    assert len(calls) == len({columns for _, columns in shapes})
    assert sum(call["x"][0] for call in calls) == sum(rows for rows, _ in shapes)


def test_a_function_may_write_into_what_it_gets() -> None:
    for inputs in ([asked([[1, 2]])], [asked([[1, 2]]), asked([[3, 4]])]):
        assert run(made("in_place"), inputs)[0]["y"].tolist() == [[2, 4]]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("wrong_rows", "the output y has 1 rows for 2 of input"),
        ("wrong_type", "the output y is of int64; INT32 is int32"),
        ("wrong_shape", "the output y has the shape [2, 1, 1], not [-1, -1]"),
        ("scalar", "the output y has the shape [], not [-1, -1]"),
        ("nothing", "no output 'y'"),
    ],
)
def test_outputs_that_are_not_as_declared_are_refused(function: str, said: str) -> None:
    with pytest.raises(ValueError, match="output") as caught:
        run(made(function), [asked([[1], [2]])])
    assert said in str(caught.value)


def test_inputs_are_refused_in_their_place() -> None:
    good, bad = asked([[1]]), asked([[1]], name="z")
    inputs = [good, bad, "text", asked([[1], [2]])]
    first, *refused = made("twice", max_rows=1).prepare(inputs, {})
    assert (first.size, signature.rows(good)) == (1, 1)
    assert [type(no) for no in refused] == [InvalidInput] * 3
    assert "takes 1 at a time" in str(refused[-1])


def test_outputs_come_as_inputs_came_and_only_those_that_are_wanted() -> None:
    plain = {"inputs": {"x": {"datatype": "INT32", "shape": [1, 2], "data": [1, 2]}}}
    engine = made("twice")
    for value, form in ((plain, "data"), (asked([[1, 2]]), "base64")):
        [output] = engine.run([one.data for one in engine.prepare([value], {})], {})
        assert form in orjson.loads(encode(output))["y"]
    engine = registry.load_engine(SAMPLES.resolve("simple"), "cpu")
    ones = Tensor.from_array("INT32", np.ones((1, 16), np.int32)).as_json()
    value = {"inputs": {"INPUT0": ones, "INPUT1": ones}}
    both, one = run(engine, [value, {**value, "outputs": ["OUTPUT1"]}])
    assert (both.keys(), one.keys()) == ({"OUTPUT0", "OUTPUT1"}, {"OUTPUT1"})
    assert both["OUTPUT0"].tolist() == [[2] * 16]
    assert one["OUTPUT1"].tolist() == [[0] * 16]


def halves(form: str, *names: str) -> TensorEngine:
    outputs, module = [of([-1], name) for name in names], f"{__name__}:Halves"
    more = {"module": module, "arguments": {"form": form}}
    return TensorEngine(inputs=[of([-1], "x")], outputs=outputs, **more)


def test_a_module_returns_a_tensor_several_or_a_dict_of_as_many_outputs() -> None:
    halved = {"low": [2, 4], "high": [3, 4]}
    for form, case in each(["tuple", "dict", "one"]):
        with case:
            names = ["low"] if form == "one" else ["low", "high"]
            [found] = run(halves(form, *names), [asked([5, 8])])
            assert {name: array.tolist() for name, array in found.items()} == {
                name: halved[name] for name in names
            }
    with pytest.raises(ValueError, match="1 outputs for 2"):
        run(halves("one", "low", "high"), [asked([5])])


def test_the_classifier_gives_what_its_module_gives_and_always_the_same() -> None:
    model = SAMPLES.resolve("image-classifier")
    images = np.random.default_rng(7).integers(0, 256, (6, 64, 64, 3), np.uint8)
    with torch.inference_mode():
        expected = RandomClassifier().eval()(torch.from_numpy(images)).numpy()
    engine = registry.load_engine(model, "cpu")
    assert engine.memory_mb() > 0
    parts = [asked(part, "image", "UINT8") for part in (images[:1], images[1:4], images[4:])]
    found = np.concatenate([outputs["probabilities"] for outputs in run(engine, parts)])
    assert found.dtype == np.float32
    assert found == pytest.approx(expected, abs=1e-6)
    assert len({tuple(row) for row in expected.round(6).tolist()}) == 6
    engine.close()
    again = run(registry.load_engine(model, "cpu"), parts)
    assert again[0]["probabilities"] == pytest.approx(expected[:1], abs=1e-6)


def test_samples_can_be_prepared_and_run_and_have_no_more_rows_than_the_model_takes() -> None:
    for name, case in each(["simple", "image-classifier"]):
        with case:
            engine = registry.load_engine(SAMPLES.resolve(name), "cpu")
            assert len(engine.samples()) == 2
            for sample in engine.samples():
                assert len(run(engine, [sample] * 2)) == 2
    options = {**SAMPLES.resolve("simple").options}
    model = Model("one", "1", "tensors", options=options, limits=Limits(max_tokens=1))
    samples = registry.load_engine(model, "").samples()
    assert [signature.rows(sample) for sample in samples] == [1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "a function or a module"),
        ({"function": "a:b", "module": "a:b"}, "not both"),
        ({"function": "nowhere:f"}, "options.function is 'nowhere:f', which can't be imported"),
        ({"module": f"{__name__}:Nothing"}, "options.module"),
    ],
)
def test_options_that_make_no_engine_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="options") as caught:
        TensorEngine(inputs=[of([-1], "x")], outputs=[of([-1], "y")], **options)
    assert said in str(caught.value)
