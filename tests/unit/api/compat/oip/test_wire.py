"""Requests and answers of `infer`, against Triton's own client: what it writes is read, and what is
written it reads."""

import io
import json
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from tritonclient.http import InferenceServerClient as Client
from tritonclient.http import InferInput, InferRequestedOutput, InferResult

from api.compat.oip import signatures, wire
from api.compat.oip.wire import Inference, Wanted
from jobs.errors import Malformed, UnknownModel
from jobs.models.builtin_models import SAMPLES
from jobs.models.inputs.signature import Signature, Spec
from jobs.models.inputs.tensors import BYTES, DTYPES, Tensor
from jobs.models.model import Model
from jobs.models.registry import Registry
from tests.support.cases import each
from tests.support.json_values import json_values

SPECS = {name: Spec(name, name, (-1, -1)) for name in DTYPES}
EVERY = Signature(SPECS, SPECS)
SIMPLE = signatures.signature(SAMPLES.resolve("simple"))
FINITE = {"allow_nan": False, "allow_infinity": False}
SHAPES = st.tuples(st.just(2), st.integers(0, 3))


def read(body: bytes, length: Any, takes: Signature) -> Inference:
    said = None if length is None else str(length)
    return wire.read(body, wire.header_length(said, body), takes)


@st.composite
def one_of_each(draw: st.DrawFn) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    for name, code in DTYPES.items():
        dtype = np.dtype(code)
        elements: Any = arrays.from_dtype(dtype, **(FINITE if dtype.kind == "f" else {}))
        if name == BYTES:
            elements = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
            elements = elements.map(str.encode)
        found[name] = draw(arrays.arrays(dtype, draw(SHAPES), elements=elements))
    return found


def written(found: dict[str, NDArray[Any]], binary: dict[str, bool]) -> list[InferInput]:
    inputs = []
    for name, array in found.items():
        inputs.append(InferInput(name, list(array.shape), name))
        inputs[-1].set_data_from_numpy(array, binary_data=binary[name])
    return inputs


def equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.shape == other.shape and one.tolist() == other.tolist()


ENCODINGS = st.fixed_dictionaries({name: st.booleans() for name in DTYPES})


@given(one_of_each(), ENCODINGS)
def test_tritons_requests_are_read(found: dict[str, NDArray[Any]], binary: dict[str, bool]) -> None:
    body, length = Client.generate_request_body(written(found, binary), request_id="7")
    asked = read(body, length, EVERY)
    assert (asked.id, asked.rows) == ("7", 2)
    for name, array in found.items():
        assert equal(asked.inputs[name].array(), array), name
    assert asked.outputs == [Wanted(name, True) for name in DTYPES]


@given(one_of_each(), ENCODINGS)
def test_tritons_client_reads_all(found: dict[str, NDArray[Any]], binary: dict[str, bool]) -> None:
    tensors = {name: Tensor.from_array(name, array) for name, array in found.items()}
    wanted = [Wanted(name, binary[name]) for name in found]
    body, length = wire.write({"model_name": "every"}, tensors, wanted)
    assert (length is None) == (not any(binary.values()))
    result = InferResult.from_response_body(body, header_length=length)
    for name, array in found.items():
        seen = result.as_numpy(name)
        if name == BYTES:
            as_texts = [t if isinstance(t, bytes) else t.encode() for t in seen.ravel().tolist()]
            assert (seen.shape, as_texts) == (array.shape, array.ravel().tolist())
        else:
            assert equal(seen, array), name


def simple(**more: Any) -> dict[str, Any]:
    inputs = [
        {"name": f"INPUT{n}", "shape": [1, 16], "datatype": "INT32", "data": [n] * 16}
        for n in range(2)
    ]
    return {"inputs": inputs, **more}


def with_first(**changed: Any) -> dict[str, Any]:
    said = simple()
    said["inputs"][0] |= changed
    return said


def with_output(**parameters: Any) -> dict[str, Any]:
    return simple(outputs=[{"name": "OUTPUT0", "parameters": parameters}])


@given(st.binary(max_size=200), st.none() | st.integers(0, 200))
def test_any_bytes_are_refused_and_nothing_breaks(body: bytes, length: int | None) -> None:
    with pytest.raises(Malformed) as caught:
        read(body, length, SIMPLE)
    assert caught.value.detail


REQUEST = st.sampled_from(["inputs", "outputs", "parameters", "id"])
TENSOR = st.sampled_from(["name", "shape", "datatype", "data", "parameters"])


@given(json_values, REQUEST, TENSOR, st.binary(max_size=80))
def test_any_json_as_a_part_is_read_or_refused(
    value: Any, of_request: str, of_tensor: str, behind: bytes
) -> None:
    for said in ({**simple(), of_request: value}, with_first(**{of_tensor: value})):
        head = orjson.dumps(said)
        try:
            asked = read(head + behind, len(head), SIMPLE)
        except Malformed:
            continue
        assert not behind
        assert asked.rows == 1
        assert asked.inputs["INPUT0"].shape == (1, 16)


@given(st.integers(-10, 300), st.integers(-10, 300))
def test_lengths_that_lie_are_refused(first: int, second: int) -> None:
    """64 bytes each is the truth."""
    said = simple()
    for entry, size in zip(said["inputs"], (first, second), strict=True):
        del entry["data"]
        entry["parameters"] = {"binary_data_size": size}
    head = orjson.dumps(said)
    if (first, second) == (64, 64):
        read(head + bytes(128), len(head), SIMPLE)
        return
    with pytest.raises(Malformed):
        read(head + bytes(128), len(head), SIMPLE)


def test_lengths_are_numbers_ids_texts_and_null_is_what_was_left_out() -> None:
    for length, case in each(["-1", "+5", " 5", "5.0", "x", "", "9" * 30, "٣", "1000"]):
        with case, pytest.raises(Malformed, match="Inference-Header-Content-Length"):
            wire.header_length(length, bytes(10))
    with pytest.raises(Malformed, match="lone surrogate"):
        read(json.dumps(simple(id="\ud800")).encode(), None, SIMPLE)
    said = simple(id=None, parameters=None, outputs=None)
    said["inputs"][0]["parameters"] = None
    asked = read(orjson.dumps(said), None, SIMPLE)
    assert (asked.id, asked.outputs[0]) == ("", Wanted("OUTPUT0", False))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ([], "must be a JSON object"),
        ({}, "inputs must be a list of objects"),
        ({"inputs": {}}, "inputs must be a list of objects"),
        ({"inputs": [1]}, "inputs must be a list of objects"),
        ({"inputs": []}, "INPUT0, INPUT1 missing"),
        (simple(id=5), "id must be a string"),
        (with_first(datatype="\ud800" * 1000), "is of '\\ud800"),
        (simple(parameters=[]), "parameters of the request must be an object"),
        (simple(parameters={"sequence_id": 1}), "sequences are not served"),
        (simple(parameters={"timeout": -1}), "timeout must be a whole number"),
        (simple(parameters={"timeout": "1"}), "timeout must be a whole number"),
        (simple(parameters={"timeout": 10**12}), "600,000,000 microseconds at most"),
        (simple(parameters={"priority": True}), "priority must be a whole number"),
        (simple(parameters={"binary_data_output": 1}), "binary_data_output must be true or false"),
        (simple(outputs={}), "outputs must be a list of objects"),
        (simple(outputs=[{}]), "no output null; there are: OUTPUT0, OUTPUT1"),
        (simple(outputs=[{"name": "OUTPUT0"}] * 2), "twice"),
        (with_output(classification=3), "classification extension is not served"),
        (with_output(shared_memory_region="x"), "shared memory is not served"),
        (with_first(name="INPUT9"), "no input 'INPUT9'; there are: INPUT0, INPUT1"),
        (with_first(name="INPUT1"), "INPUT1: sent twice"),
        (with_first(datatype="FP32"), "INPUT0: is of 'FP32', not INT32"),
        (with_first(datatype="BF16"), "INPUT0: is of 'BF16', not INT32"),
        (with_first(shape=[1, 15]), "INPUT0: has the shape [1, 15], not [-1, 16]"),
        (with_first(shape=[-1, 16]), "INPUT0: shape must have whole numbers"),
        (with_first(shape=[2**40, 16]), "INPUT0: shape must have whole numbers"),
        (with_first(shape=[2**31 - 1, 16]), "INPUT0: has 16 elements"),
        (with_first(shape=[2, 16], data=[0] * 32), "all must have as many rows"),
        (with_first(data=None), "INPUT0: data must be a list"),
        (with_first(parameters={"binary_data_size": 0}), "without data beside it"),
        (with_first(parameters={"shared_memory_region": "x"}), "INPUT0: shared memory"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(said: Any, message: str) -> None:
    with pytest.raises(Malformed) as caught:
        read(json.dumps(said).encode(), None, SIMPLE)
    assert message in caught.value.detail
    assert len(caught.value.detail.encode()) < 500


CLASSES = {0: "interactive", 1: "interactive", 2: "standard", 3: "bulk", 2**40: "bulk"}


@pytest.mark.parametrize(
    ("name", "field", "values"),
    [
        ("priority", "job_class", CLASSES),
        ("timeout", "timeout_ms", {0: 10_000, 1: 1, 1001: 2, 600_000_000: 600_000}),
    ],
)
def test_priority_and_timeout_are_ours(name: str, field: str, values: dict[int, object]) -> None:
    for value, found in values.items():
        asked = read(orjson.dumps(simple(parameters={name: value})), None, SIMPLE)
        assert getattr(asked, field) == found, value


def test_each_output_says_how_it_comes() -> None:
    outputs = [InferRequestedOutput("OUTPUT1", binary_data=True),
               InferRequestedOutput("OUTPUT0", binary_data=False)]  # fmt: skip
    inputs = [InferInput(f"INPUT{n}", [1, 16], "INT32") for n in range(2)]
    for one in inputs:
        one.set_data_from_numpy(np.zeros((1, 16), np.int32))
    body, length = Client.generate_request_body(inputs, outputs=outputs)
    asked = read(body, length, SIMPLE)
    assert asked.outputs == [Wanted("OUTPUT1", True), Wanted("OUTPUT0", False)]
    tensors = {
        f"OUTPUT{n}": Tensor.from_array("INT32", np.full((1, 16), n, np.int32)) for n in (0, 1)
    }
    body, length = wire.write({}, tensors, asked.outputs)
    described = orjson.loads(io.BytesIO(body).read(length))["outputs"]
    assert described[0]["parameters"] == {"binary_data_size": 64}
    assert described[1]["data"] == [0] * 16


def test_what_json_cant_hold_is_refused_unless_it_is_binary() -> None:
    for tensor in (
        Tensor.from_array("FP32", np.array([np.nan], np.float32)),
        Tensor.from_array(BYTES, np.array([b"\xff"], object)),
    ):
        with pytest.raises(Malformed, match="ask for binary data"):
            wire.write({}, {"x": tensor}, [Wanted("x", False)])
        assert wire.write({}, {"x": tensor}, [Wanted("x", True)])[0].endswith(tensor.raw)


def test_a_model_of_texts_takes_a_tensor_of_texts_and_answers_vectors_texts_or_json() -> None:
    chat = Model("chat", "1", "echo", task="chat")
    minilm, echo = map(SAMPLES.resolve, ("minilm", "echo"))
    texts, said, none = (signatures.metadata_object(one, [one]) for one in (minilm, echo, chat))
    assert texts["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    assert texts["outputs"] == [{"name": "embedding", "datatype": "FP32", "shape": [-1, -1]}]
    assert said["outputs"] == [{"name": "output", "datatype": "BYTES", "shape": [-1]}]
    assert none["inputs"] == []
    with pytest.raises(Malformed, match="use POST /infer"):
        signatures.call_signature(chat)
    vectors = signatures.joined_outputs(minilm, [b"[0.5,1]", b"[2,3]"])["embedding"]
    assert vectors.array().tolist() == [[0.5, 1], [2, 3]]
    said = signatures.joined_outputs(echo, ['"ä"'.encode(), b'{"a":[1]}', b"null"])["output"]
    assert said.array().tolist() == ["ä".encode(), b'{"a":[1]}', b"null"]


def test_versions_are_found_by_path() -> None:
    two = [Model("m", version, "echo") for version in ("1", "2")]
    models = Registry(two)
    assert signatures.models_of(models, "m") == two[::-1]
    assert signatures.models_of(models, "m", "1") == [two[0]]
    for name, version in (("m", "3"), ("n", ""), ("n", "1"), ("m@1", "1")):
        with pytest.raises(UnknownModel):
            signatures.models_of(models, name, version)
