"""The Open Inference Protocol: what is rejected, not served, or limited, and its own document."""

from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from schemathesis.specs.openapi.checks import positive_data_acceptance, status_code_conformance
from tritonclient.utils import InferenceServerException

from jobs.models.inputs.tensors import DTYPES
from ops.supervisor.platform import Platform
from tests.acceptance.compat.oip import conftest as oip
from tests.acceptance.compat.oip.conftest import LEFT, PAIR, RIGHT, Triton, wanted
from tests.support.clients import http_of
from tests.support.documented import SPECS, ask_often, operations
from tests.support.platforms import CHATTING
from tests.support.wait import PATIENCE_S, eventually

PLATFORM = CHATTING
MODELS = oip.MODELS
WRONG: list[tuple[str, Callable[[Triton], Any], str, str]] = [
    ("unknown model", lambda t: t.ask("nobody", PAIR), "404", "model 'nobody' does not exist"),
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
    ("NUL", lambda t: t.ask("echo", {"text": np.array(["x", "a\0b"], object)}), "400",
     "text: element 1: holds a NUL character, U+0000: remove it"),
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


def test_a_request_that_takes_too_long_is_refused_or_ended_in_time(triton: Triton) -> None:
    """Refused where its wait is predicted; a pool that was idle for long tries."""
    for _ in range(3):
        with pytest.raises(InferenceServerException) as caught:
            triton.ask("slow", {"x": np.ones(1, np.float32)}, timeout=50_000)
        assert caught.value.status() in ("429", "504")


def test_quotas_hold_and_are_told_of(platform: Platform, http: httpx.Client) -> None:
    limit = {"data": [{"model": "simple", "tokens_per_s": 3}]}
    assert http.put("/tenants/limited/limits", json=limit).status_code == 200
    said = {"shape": [2, 16], "datatype": "INT32", "data": [1] * 32}
    body = {"inputs": [{"name": f"INPUT{n}", **said} for n in range(2)]}
    with http_of(platform, "limited") as own:
        found = eventually(
            lambda: f if (f := own.post("/v2/models/simple/infer", json=body)).is_error else None
        )
    assert found.status_code == 429
    assert list(found.json()) == ["error"]
    assert "tokens" in found.headers["RateLimit"]
    assert int(found.headers["Retry-After-Ms"]) > 0


def test_texts_have_no_more_calls_in_flight_than_their_tenant_may(
    platform: Platform, http: httpx.Client
) -> None:
    limit = {"data": [{"calls_in_flight": 2}]}
    assert http.put("/tenants/one-by-one/limits", json=limit).status_code == 200
    said = {"name": "text", "datatype": "BYTES", "shape": [12], "data": list("abcdefghijkl")}
    with http_of(platform, "one-by-one") as own:
        found = own.post("/v2/models/minilm/infer", json={"inputs": [said]})
    assert found.status_code == 200, found.text
    assert found.json()["outputs"][0]["shape"] == [12, 384]


SPEC = SPECS / "open-inference-protocol.openapi.yaml"
OURS = {"MODEL_NAME": "simple", "MODEL_VERSION": "1"}


@pytest.mark.skipif(not SPEC.exists(), reason="the specification in ../shared/spec is not here")
@pytest.mark.parametrize("named", [False, True], ids=["any model", "a model that is there"])
def test_the_specification_holds(
    platform: Platform, http: httpx.Client, headers: dict[str, str], named: bool
) -> None:
    found = operations(SPEC, platform.url).values()
    assert len(found) == 9
    for operation in found:
        there = named or "{" not in operation.path
        statuses = asked_for(operation, headers, named)
        assert (200 in statuses) == (there and operation.method == "get"), operation.label


def asked_for(operation: Any, headers: dict[str, str], named: bool) -> set[int]:
    """The statuses of answers that are as specified. It documents none for a model that isn't
    there, and can't say which tensors one takes; all else is checked either way."""
    excluded = [positive_data_acceptance] if named else [status_code_conformance]
    statuses: set[int] = set()

    def holds(case: Any) -> None:
        if named:
            case.path_parameters = {name: OURS[name] for name in case.path_parameters}
        sent = {"headers": headers, "timeout": PATIENCE_S}
        statuses.add(case.call_and_validate(**sent, excluded_checks=excluded).status_code)

    ask_often(operation, holds, 20)
    return statuses
