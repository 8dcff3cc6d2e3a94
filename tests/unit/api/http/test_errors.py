"""Errors of the framework itself, and those of POST /api/inference."""

import json
import re
from typing import Annotated, Any

import pytest
from fastapi import FastAPI
from pydantic import BaseModel, Field

from api.compat.inference import PATH
from api.http import errors
from api.http.errors import problem_response
from jobs import ids
from jobs.errors import (
    DeadlinePassed,
    Invalid,
    Malformed,
    MillraceError,
    Overloaded,
    TooLate,
    Unauthenticated,
    Unavailable,
    WorkerLost,
)
from tests.unit.api.asking import ask


def _route() -> None:
    pass


def test_the_paths_are_compiled_once_for_all_wrong_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_path = errors.compile_path

    def counted(path: str) -> Any:
        compiled.append(path)
        return compile_path(path)

    monkeypatch.setattr(errors, "compile_path", counted)
    app = FastAPI()
    errors.install(app)
    for path in ("/one", "/two/{id}"):
        app.get(path)(_route)
        app.delete(path)(_route)

    found = ask(app, *[("POST", path) for path in ("/one", "/two/2", "/one")])
    assert [answer.status_code for answer in found] == [405] * 3
    assert [answer.headers["allow"] for answer in found] == ["DELETE, GET"] * 3
    assert compiled == ["/one", "/two/{id}"]


NEAREST = {
    ("POST", "/v1/chat/completion"): "the nearest is POST /v1/chat/completions",
    ("GET", "/v1/completion"): "the nearest is POST /v1/completions",
    ("GET", "/job/job_01h455vb4pex5vsknk084sn02q"): "the nearest is GET /jobs/{job_id}",
    ("GET", "/nonsense"): "/docs shows what there is",
    ("GET", "/jobs" * 100): "/docs shows what there is",
}


def test_an_unknown_path_is_told_the_nearest_one() -> None:
    app = FastAPI()
    errors.install(app)
    app.post("/v1/chat/completions")(_route)
    app.post("/v1/completions")(_route)
    app.get("/jobs/{job_id}")(_route)
    for answer, named in zip(ask(app, *NEAREST), NEAREST.values(), strict=True):
        problem = answer.json()  # in OpenAI's words where its routes were imported
        message: str = problem.get("detail") or problem["error"]["message"]
        assert message.endswith(f"here; {named}")


def test_a_text_that_is_no_id_is_told_how_it_differs() -> None:
    class Asked(BaseModel):
        id: Annotated[str, Field(pattern=ids.pattern("job", "batch"))]

    for text, message in (
        ("nope", "'nope' is no id; one begins with job_ or batch_"),
        ("job_nope", "'job_nope' is no id: after job_ come 26 digits and lower-case letters"),
    ):
        with pytest.raises(Invalid, match=re.escape(message)):
            errors.validated(Asked, {"id": text})


def test_what_is_no_object_is_told_so() -> None:
    class Inner(BaseModel):
        x: int

    class Asked(BaseModel):
        inner: Inner
        labels: dict[str, str]

    for value, message in (
        ([1], "the body must be a JSON object"),
        ({"inner": 1, "labels": {}}, "inner: must be a JSON object"),
        ({"inner": {"x": 1}, "labels": []}, "labels: must be a JSON object"),
    ):
        with pytest.raises(Invalid) as caught:
            errors.validated(Asked, value)
        assert caught.value.detail == message


def test_errors_have_their_status() -> None:
    for status, code, kinds in (
        (400, "INVALID_REQUEST", [Malformed, Invalid]),
        (401, "UNAUTHORIZED", [Unauthenticated]),
        (503, "SERVICE_OVERLOADED", [TooLate, Overloaded, Unavailable, WorkerLost]),
        (504, "TIMEOUT", [DeadlinePassed]),
        (500, "INTERNAL_ERROR", [MillraceError]),
    ):
        wait_s = 0.25 if status == 503 else None
        for kind in kinds:
            answer = problem_response(kind("no", retry_after_s=wait_s), "req_1", PATH)
            body: dict[str, Any] = json.loads(bytes(answer.body))
            assert (answer.status_code, body.pop("error")) == (status, code)
            assert body.pop("retry_after_ms", None) == (250 if wait_s else None)
            assert body == {"message": "no", "request_id": "req_1"}
            assert answer.media_type == "application/json"
    assert b'"status":429' in bytes(problem_response(TooLate("no"), "req_1", "/infer").body)
