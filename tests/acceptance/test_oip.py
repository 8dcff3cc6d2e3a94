"""The Open Inference Protocol as its clients use it: Triton's own, unmodified, in both encodings,
against a platform that runs."""

import gzip
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pytest
import schemathesis
import torch
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray
from schemathesis.specs.openapi.checks import positive_data_acceptance, status_code_conformance
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput, InferResult
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from jobs.models.builtin_models import SAMPLES
from jobs.models.inputs import tensors
from jobs.models.inputs.tensors import BYTES, DTYPES, Tensor
from jobs.models.model import Limits, Model
from jobs.states import TERMINAL
from ops.bench.harness.models_files import models_file, sample
from ops.supervisor.platform import Platform
from tests.support.keys import make_key_at
from tests.support.platforms import spec
from tests.support.wait import PATIENCE_S, eventually
from workers.engines.classifier import RandomClassifier

SPEC = Path(__file__).parents[3] / "shared/spec/open-inference-protocol.openapi.yaml"
OURS = {"MODEL_NAME": "simple", "MODEL_VERSION": "1"}
LARGE = 224


def served(name: str, function: str, declared: list[dict[str, Any]]) -> Model:
    """Declares a model whose outputs are named as its inputs."""
    path = f"tests.support.models.tensor:{function}"
    options = {"function": path, "inputs": declared, "outputs": declared}
    return Model(name, "1", "tensors", options=options)


def of(name: str, datatype: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape)}


FP32 = [of("x", "FP32", -1)]
MODELS = [
    sample("simple"),
    sample("simple", version="2", limits={"max_tokens": 4}),
    sample(
        "image-classifier",
        options={
            **SAMPLES.resolve("image-classifier").options,
            "inputs": [of("image", "UINT8", -1, LARGE, LARGE, 3)],
        },
        limits={"max_tokens": 8, "max_item_bytes": 2_000_000},
    ),
    served("every", "same", [of(name, name, -1, -1) for name in DTYPES]),
    served("slow", "slow", FP32),
    served("nan", "nan", FP32),
    served("broken", "broken", FP32),
    sample("minilm"),
    sample("echo"),
    Model("chat", "1", "echo", task="chat", limits=Limits(max_batch=2)),
]
PLATFORM = spec(models_file(*MODELS), is_closed=True, lease_s=3.0)


@pytest.fixture(scope="module")
def headers(platform: Platform) -> dict[str, str]:
    """Headers of an admin: since a key was made, nobody comes in without one."""
    key, _ = make_key_at(platform.settings.database_url, "acme", role="admin")
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def http(platform: Platform, headers: dict[str, str]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=platform.url, headers=headers) as made:
        eventually(lambda: made.get("/keys").status_code == 200)
        yield made


class Triton(InferenceServerClient):  # type: ignore[misc]
    """Their client; each request with the key."""

    def __init__(self, platform: Platform, headers: dict[str, str]) -> None:
        super().__init__(platform.url.removeprefix("http://"), concurrency=8)
        self.headers = headers

    def ask(self, model: str, arrays: dict[str, NDArray[Any]], **more: Any) -> InferResult:
        binary = more.pop("binary", True)
        inputs = given_inputs(arrays, binary)
        return self.infer(model, inputs, headers=dict(self.headers), **more)


@pytest.fixture(scope="module")
def triton(platform: Platform, headers: dict[str, str], http: httpx.Client) -> Iterator[Triton]:
    with Triton(platform, headers) as made:
        yield made


def given_inputs(arrays: dict[str, NDArray[Any]], binary: bool) -> list[InferInput]:
    inputs = []
    for name, array in arrays.items():
        inputs.append(InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array, binary_data=binary)
    return inputs


def wanted(binary: bool | None, *names: str) -> list[InferRequestedOutput] | None:
    """None: what their client asks for by itself, all of them and binary."""
    if binary is None:
        return None
    return [InferRequestedOutput(name, binary_data=binary) for name in names]


LEFT = np.arange(32, dtype=np.int32).reshape(2, 16)
RIGHT = np.full((2, 16), 7, np.int32)
PAIR = {"INPUT0": LEFT, "INPUT1": RIGHT}

each_encoding = pytest.mark.parametrize("binary", [True, False])


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
    assert {(entry["name"], entry["version"]) for entry in index} == {
        (model.name, model.version) for model in MODELS
    }
    assert {entry["state"] for entry in index} == {"READY"}


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
        timeout=5_000_000,
    )  # fmt: skip
    assert found.get_response()["id"] == "mine"
    assert [output["name"] for output in found.get_response()["outputs"]] == ["OUTPUT1"]
    assert triton.ask("simple", PAIR).get_response()["id"].startswith("call_")


@each_encoding
@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (2, 0)])
def test_every_datatype_comes_back_as_it_went(
    triton: Triton, binary: bool, shape: tuple[int, int]
) -> None:
    random = np.random.default_rng(3)
    arrays: dict[str, NDArray[Any]] = {}
    for name, dtype in DTYPES.items():
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

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, range(6)))
    assert [value for value, _ in answers] == list(range(6))
    assert max(size for _, size in answers) > 1


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


WRONG: list[tuple[str, Callable[[Triton], Any], str, str]] = [
    ("unknown model", lambda t: t.ask("nobody", PAIR), "404", "no model 'nobody'"),
    ("unknown version", lambda t: t.ask("simple", PAIR, model_version="9"), "404", "no version"),
    ("shape", lambda t: t.ask("simple", {"INPUT0": LEFT[:, :5], "INPUT1": RIGHT}), "400",
     "INPUT0: has the shape [2, 5], not [-1, 16]"),
    ("datatype", lambda t: t.ask("simple", {"INPUT0": LEFT.astype(np.float32), "INPUT1": RIGHT}),
     "400", "INPUT0: is of 'FP32', not INT32"),
    ("missing", lambda t: t.ask("simple", {"INPUT0": LEFT}), "400", "INPUT1 missing"),
    ("unknown input", lambda t: t.ask("simple", {**PAIR, "more": LEFT}), "400", "no input 'more'"),
    ("unknown output", lambda t: t.ask("simple", PAIR, outputs=wanted(True, "x")), "400",
     "no output 'x'; there are: OUTPUT0, OUTPUT1"),
    ("rows", lambda t: t.ask("simple", {"INPUT0": LEFT, "INPUT1": RIGHT[:1]}), "400",
     "as many rows"),
    ("too many rows",
     lambda t: t.ask("simple", {name: np.repeat(a, 3, axis=0) for name, a in PAIR.items()},
                     model_version="2"), "400", "6 rows; the model takes 4 at a time"),
    ("too many texts", lambda t: t.ask("echo", {"text": np.array(["x"] * 501, object)}), "400",
     "501 rows; the model takes 500 at a time"),
    ("no tensors", lambda t: t.ask("chat", PAIR), "400", "takes no tensors; use POST /infer"),
    ("sequence", lambda t: t.ask("simple", PAIR, sequence_id=7), "400", "sequences are not"),
    ("no text", lambda t: t.ask("echo", {"text": np.array([b"\xff"], object)}), "400", "UTF-8"),
    ("broken", lambda t: t.ask("broken", {"x": np.ones(1, np.float32)}), "500", "nothing works"),
    ("too large", lambda t: t.ask("every", {
        name: np.zeros((1, 0 if name != "INT64" else 30_000), dtype)
        for name, dtype in DTYPES.items()}), "413", "in base64; every@1 takes 262144"),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "status", "said"), [row[1:] for row in WRONG],
                         ids=[row[0] for row in WRONG])  # fmt: skip
def test_what_is_wrong_is_said_in_the_protocols_words(
    triton: Triton, ask: Callable[[Triton], Any], status: str, said: str
) -> None:
    with pytest.raises(InferenceServerException) as caught:
        ask(triton)
    assert (caught.value.status(), said in caught.value.message()) == (status, True), caught.value


UNSERVED: list[tuple[Callable[..., Any], str]] = [
    (lambda t, **said: t.get_inference_statistics("simple", **said), "statistics are not"),
    (lambda t, **said: t.get_inference_statistics(**said), "statistics are not"),
    (lambda t, **said: t.load_model("simple", **said), "come and go with the models file"),
    (lambda t, **said: t.unload_model("simple", **said), "come and go with the models file"),
    (lambda t, **said: t.get_trace_settings(**said), "tracing is not"),
    (lambda t, **said: t.update_trace_settings("simple", {"x": "1"}, **said), "tracing is not"),
    (lambda t, **said: t.get_log_settings(**said), "log settings are not"),
    (lambda t, **said: t.get_system_shared_memory_status(**said), "shared memory is not"),
    (lambda t, **said: t.get_cuda_shared_memory_status("x", **said), "shared memory is not"),
]


@pytest.mark.parametrize(("ask", "said"), UNSERVED)
def test_what_is_not_served_says_so(triton: Triton, ask: Callable[..., Any], said: str) -> None:
    with pytest.raises(InferenceServerException, match=said) as caught:
        ask(triton, headers=triton.headers)
    assert caught.value.status() == "404"
    with pytest.raises(InferenceServerException, match="key"):
        ask(triton)


@pytest.mark.parametrize("key", [None, "mk_" + "a" * 43])
def test_nobody_infers_or_looks_without_a_good_key(triton: Triton, key: str | None) -> None:
    said = {"Authorization": f"Bearer {key}"} if key else {}
    for ask in (
        lambda: triton.infer("simple", given_inputs(PAIR, True), headers=dict(said)),
        lambda: triton.get_server_metadata(headers=said),
        lambda: triton.get_model_metadata("simple", headers=said),
        lambda: triton.get_inference_statistics("simple", headers=said),
    ):
        with pytest.raises(InferenceServerException, match="key") as caught:
            ask()
        assert caught.value.status() == "401"


def test_a_request_that_takes_too_long_is_refused_or_ended_in_time(triton: Triton) -> None:
    """Refused where its wait is predicted; a pool that was idle for long tries."""
    for _ in range(3):
        with pytest.raises(InferenceServerException) as caught:
            triton.ask("slow", {"x": np.ones(1, np.float32)}, timeout=50_000)
        assert caught.value.status() in ("429", "504")


def test_quotas_hold_and_are_told_of(platform: Platform, http: httpx.Client) -> None:
    path = "/tenants/limited/limits"
    key, _ = make_key_at(platform.settings.database_url, "limited")
    limit = {"data": [{"model": "simple", "tokens_per_s": 3}]}
    assert http.put(path, json=limit).status_code == 200
    said = {"shape": [2, 16], "datatype": "INT32", "data": [1] * 32}
    body = {"inputs": [{"name": f"INPUT{n}", **said} for n in range(2)]}
    with httpx.Client(base_url=platform.url, headers={"Authorization": f"Bearer {key}"}) as own:
        found = eventually(
            lambda: f if (f := own.post("/v2/models/simple/infer", json=body)).is_error else None
        )
    assert found.status_code == 429
    assert list(found.json()) == ["error"]
    assert "tokens" in found.headers["RateLimit"]
    assert int(found.headers["Retry-After-Ms"]) > 0


@each_encoding
def test_texts_have_the_vectors_that_infer_gives(
    triton: Triton, http: httpx.Client, binary: bool
) -> None:
    texts = ["a cat", "Grüße", ""]
    array = np.array([text.encode() for text in texts], object)
    found = triton.ask("minilm", {"text": array}, binary=binary).as_numpy("embedding")
    assert found.shape == (3, 384)
    for text, vector in zip(texts, found, strict=True):
        alone = http.post("/infer", json={"model": "minilm", "input": text}).json()["output"]
        assert vector == pytest.approx(alone, abs=1e-5)
    echoed = triton.ask("echo", {"text": array}, binary=binary).as_numpy("output")
    assert echoed.tolist() == array.tolist()


def test_texts_have_no_more_calls_in_flight_than_their_tenant_may(
    platform: Platform, http: httpx.Client
) -> None:
    key, _ = make_key_at(platform.settings.database_url, "one-by-one")
    limit = {"data": [{"calls_in_flight": 2}]}
    assert http.put("/tenants/one-by-one/limits", json=limit).status_code == 200
    with httpx.Client(base_url=platform.url, headers={"Authorization": f"Bearer {key}"}) as own:
        said = {"name": "text", "datatype": "BYTES", "shape": [12], "data": list("abcdefghijkl")}
        found = own.post("/v2/models/minilm/infer", json={"inputs": [said]})
    assert found.status_code == 200, found.text
    assert found.json()["outputs"][0]["shape"] == [12, 384]


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


@pytest.mark.skipif(not SPEC.exists(), reason="the specification in ../shared/spec is not here")
@pytest.mark.parametrize("named", [False, True], ids=["any model", "a model that is there"])
def test_the_specification_holds(
    platform: Platform, http: httpx.Client, headers: dict[str, str], named: bool
) -> None:
    document = schemathesis.openapi.from_path(SPEC)
    document.config.update(base_url=platform.url)
    operations = [found.ok() for found in document.get_all_operations()]
    assert len(operations) == 9
    for operation in operations:
        there = named or "{" not in operation.path
        statuses = asked_for(operation, headers, named)
        assert (200 in statuses) == (there and operation.method == "get"), operation.label


def asked_for(operation: Any, headers: dict[str, str], named: bool) -> set[int]:
    """The statuses of answers that are as specified. It documents none for a model that isn't
    there, and can't say which tensors one takes; all else is checked either way."""
    excluded = [positive_data_acceptance] if named else [status_code_conformance]
    statuses: set[int] = set()

    @settings(
        max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy())
    def holds(case: Any) -> None:
        if named:
            case.path_parameters = {name: OURS[name] for name in case.path_parameters}
        found = case.call_and_validate(
            headers=headers, timeout=PATIENCE_S, excluded_checks=excluded
        )
        statuses.add(found.status_code)

    holds()
    return statuses
