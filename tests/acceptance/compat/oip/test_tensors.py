"""The Open Inference Protocol as its clients use it: Triton's own, unmodified, in both encodings,
against a platform that runs."""

import gzip
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import orjson
import pytest
import torch
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

from jobs.models.inputs import tensors
from jobs.models.inputs.tensors import BYTES, DTYPES, Tensor
from jobs.states import TERMINAL
from ops.supervisor.platform import Platform
from tests.acceptance.compat.oip import conftest as oip
from tests.acceptance.compat.oip.conftest import (
    LARGE,
    LEFT,
    PAIR,
    RIGHT,
    Triton,
    each_encoding,
    given_inputs,
    of,
    wanted,
)
from tests.support.platforms import CHATTING
from tests.support.wait import PATIENCE_S, eventually
from workers.engines.classifier import RandomClassifier

PLATFORM = CHATTING
MODELS = oip.MODELS


def test_health_and_metadata(triton: Triton) -> None:
    said = {"headers": triton.headers}
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("simple", **said)
    assert triton.is_model_ready("simple", "2", **said)
    assert not triton.is_model_ready("simple", "3", **said)
    assert not triton.is_model_ready("nobody", **said)
    server = triton.get_server_metadata(**said)
    assert server["name"] == "millrace"
    assert "binary_tensor_data" in server["extensions"]
    assert triton.get_model_metadata("simple", **said) == {
        "name": "simple",
        "versions": ["1", "2"],
        "platform": "millrace_tensors",
        "inputs": [of(f"INPUT{n}", "INT32", -1, 16) for n in range(2)],
        "outputs": [of(f"OUTPUT{n}", "INT32", -1, 16) for n in range(2)],
    }
    assert triton.get_model_metadata("minilm", "1", **said)["inputs"] == [of("text", BYTES, -1)]
    config = triton.get_model_config("simple", "2", **said)
    assert config["max_batch_size"] == 4
    assert config["input"][0] == {"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [16]}
    assert triton.get_model_config("simple", **said)["max_batch_size"] == 4
    index = triton.get_model_repository_index(**said)
    # Models of the module before are listed too, for as long as the worker unloads them.
    shown = {(entry["name"], entry["version"]): entry["state"] for entry in index}
    assert {shown.get((model.name, model.version)) for model in oip.ENTRIES} == {"READY"}
    assert shown["minilm", "1"] == "READY"


@each_encoding
@pytest.mark.parametrize("answer", [True, False, None])
@pytest.mark.parametrize("version", ["", "1", "2"])
def test_sums_and_differences_are_numpys(
    triton: Triton, binary: bool, answer: bool | None, version: str
) -> None:
    outputs = wanted(answer, "OUTPUT1", "OUTPUT0")
    found = triton.ask("simple", PAIR, binary=binary, outputs=outputs, model_version=version)
    assert np.array_equal(found.as_numpy("OUTPUT0"), LEFT + RIGHT)
    assert np.array_equal(found.as_numpy("OUTPUT1"), LEFT - RIGHT)
    response = found.get_response()
    assert (response["model_name"], response["model_version"]) == ("simple", version or "2")
    sizes = {"binary_data_size" in out.get("parameters", {}) for out in response["outputs"]}
    assert sizes == {answer is not False}


def test_an_answer_has_the_requests_id_and_the_outputs_that_it_asked_for(triton: Triton) -> None:
    found = triton.ask(
        "simple", PAIR, request_id="mine", outputs=wanted(True, "OUTPUT1"), priority=2,
        timeout=60_000_000,
    )  # fmt: skip
    assert found.get_response()["id"] == "mine"
    assert [output["name"] for output in found.get_response()["outputs"]] == ["OUTPUT1"]
    assert triton.ask("simple", PAIR).get_response()["id"].startswith("call_")


@each_encoding
@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (2, 0)])
def test_every_datatype_comes_back(triton: Triton, binary: bool, shape: tuple[int, int]) -> None:
    random = np.random.default_rng(3)
    arrays: dict[str, NDArray[Any]] = {}
    for name, code in DTYPES.items():
        dtype = np.dtype(code)
        if name == BYTES:
            texts = ["", "ä猫\n", "x" * 300] if not binary else [b"", b"\xff\0\n", b"x" * 300]
            arrays[name] = random.choice(np.array(texts, object), shape)
        elif dtype.kind == "f":
            arrays[name] = random.normal(size=shape).astype(dtype)
        elif dtype.kind == "b":
            arrays[name] = random.integers(0, 2, shape).astype(dtype)
        else:
            span = np.iinfo(dtype)
            arrays[name] = random.integers(span.min, span.max, shape, dtype, endpoint=True)
    found = triton.ask("every", arrays, binary=binary, outputs=wanted(binary, *arrays))
    for name, array in arrays.items():
        assert found.as_numpy(name).tolist() == array.tolist(), name


def test_nan_and_infinity_travel_as_binary_and_json_says_that_it_cant(triton: Triton) -> None:
    asked = {"x": np.array([1, -2], np.float32)}
    assert np.isnan(triton.ask("nan", asked).as_numpy("x")).all()
    with pytest.raises(InferenceServerException, match=r"x: holds NaN .* ask for binary data"):
        triton.ask("nan", asked, outputs=wanted(False, "x"))


@each_encoding
def test_images_are_classified_as_the_module_does_it_here(triton: Triton, binary: bool) -> None:
    images = np.random.default_rng(5).integers(0, 256, (2, LARGE, LARGE, 3), np.uint8)
    with torch.inference_mode():
        expected = RandomClassifier().eval()(torch.from_numpy(images)).numpy()
    found = triton.ask(
        "image-classifier", {"image": images}, binary=binary,
        outputs=wanted(binary, "probabilities"),
    )  # fmt: skip
    assert found.as_numpy("probabilities") == pytest.approx(expected, abs=1e-6)


def test_requests_at_a_time_share_launches_and_each_gets_its_own(triton: Triton) -> None:
    pairs = [{"INPUT0": LEFT[:1] + n, "INPUT1": RIGHT[:1]} for n in range(40)]
    asked = [
        triton.async_infer("simple", given_inputs(pair, n % 2 == 0), model_version="1",
                           headers=dict(triton.headers))
        for n, pair in enumerate(pairs)
    ]  # fmt: skip
    found = [request.get_result(timeout=PATIENCE_S) for request in asked]
    for pair, result in zip(pairs, found, strict=True):
        assert np.array_equal(result.as_numpy("OUTPUT0"), pair["INPUT0"] + pair["INPUT1"])


def test_what_waits_for_a_launch_shares_the_next_one(
    platform: Platform, headers: dict[str, str], http: httpx.Client
) -> None:
    def ask(value: int) -> tuple[float, int]:
        body = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [value]}]}
        with httpx.Client(base_url=platform.url, headers=headers) as own:
            found = own.post("/v2/models/slow/infer", json=body)
        assert found.status_code == 200, found.text
        said = found.json()
        return said["outputs"][0]["data"][0], said["parameters"]["batch_size"]

    def largest() -> int:
        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(ask, range(6)))
        assert [value for value, _ in answers] == list(range(6))
        return max(size for _, size in answers)

    eventually(lambda: largest() > 1)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_bodies_may_be_compressed_both_ways(triton: Triton, coding: str) -> None:
    many = {name: np.repeat(array, 50, axis=0) for name, array in PAIR.items()}
    found = triton.ask(
        "simple", many, model_version="1", request_compression_algorithm=coding,
        response_compression_algorithm=coding,
    )  # fmt: skip
    assert np.array_equal(found.as_numpy("OUTPUT0"), many["INPUT0"] + many["INPUT1"])


def test_an_answer_in_gzip_says_so(http: httpx.Client) -> None:
    said = {"shape": [100, 16], "datatype": "INT32", "data": [1] * 1600}
    body = {"inputs": [{"name": f"INPUT{n}", **said} for n in range(2)]}
    path = "/v2/models/simple/versions/1/infer"
    for coding in ("gzip", "identity"):
        content = orjson.dumps(body) if coding == "identity" else gzip.compress(orjson.dumps(body))
        sent = {"Content-Encoding": coding, "Accept-Encoding": coding}
        found = http.post(path, content=content, headers=sent)
        assert found.headers.get("content-encoding", "identity") == coding
        assert found.json()["outputs"][0]["data"] == [2] * 1600


@each_encoding
def test_texts_have_the_vectors_of_infer(triton: Triton, http: httpx.Client, binary: bool) -> None:
    texts = ["a cat", "Grüße", ""]
    array = np.array([text.encode() for text in texts], object)
    found = triton.ask("minilm", {"text": array}, binary=binary).as_numpy("embedding")
    assert found.shape == (3, 384)
    for text, vector in zip(texts, found, strict=True):
        alone = http.post("/infer", json={"model": "minilm", "input": text}).json()["output"]
        assert vector == pytest.approx(alone, abs=1e-5)
    echoed = triton.ask("echo", {"text": array}, binary=binary).as_numpy("output")
    assert echoed.tolist() == array.tolist()


def test_our_own_doors_take_tensors_too(http: httpx.Client) -> None:
    left = {"datatype": "INT32", "shape": [1, 16], "data": list(range(16))}
    right = Tensor.from_array("INT32", RIGHT[:1]).as_json()
    plain = {"inputs": {"INPUT0": left, "INPUT1": left}, "outputs": ["OUTPUT0"]}
    in_base64 = {"inputs": {"INPUT0": left, "INPUT1": right}}
    found = http.post("/infer", json={"model": "simple@1", "input": plain}).json()
    assert found["output"] == {"OUTPUT0": {**left, "data": [2 * n for n in range(16)]}}
    assert found["usage"] == {"rows": 1}
    wrong = http.post("/infer", json={"model": "simple@1", "input": {"inputs": {"INPUT0": left}}})
    assert (wrong.status_code, wrong.json()["errors"][0]["code"]) == (422, "invalid_tensor")

    job = http.post("/jobs", json={"model": "simple@1", "items": [{"input": plain}, {"input": 5}]})
    assert job.status_code == 422
    assert [fault["loc"] for fault in job.json()["errors"]] == [["items", 1, "input"]]
    job = http.post(
        "/jobs",
        json={"model": "simple@1", "on_invalid": "fail_item",
              "items": [{"input": plain}, "text", {"input": in_base64}]},
    )  # fmt: skip
    path = f"/jobs/{job.json()['id']}"
    eventually(lambda: http.get(path).json()["state"] in TERMINAL)
    lines = [orjson.loads(line) for line in http.get(f"{path}/results").text.splitlines()]
    assert [line["outcome"] for line in lines] == ["succeeded", "failed", "succeeded"]
    assert lines[0]["output"] == found["output"]
    assert lines[1]["error"]["code"] == "invalid_input"
    difference = tensors.output(lines[2]["output"]["OUTPUT1"]).array()
    assert difference.tolist() == [[n - 7 for n in range(16)]]
