"""Errors of POST /api/inference: status, code, and the time to wait."""

import json
from typing import Any

import pytest

from api.compat.inference import PATH
from api.http.errors import problem_response
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


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Malformed("no"), 400, "INVALID_REQUEST"),
        (Invalid("no"), 400, "INVALID_REQUEST"),
        (Unauthenticated("no"), 401, "UNAUTHORIZED"),
        (TooLate("no", retry_after_s=0.25), 503, "SERVICE_OVERLOADED"),
        (Overloaded("no", retry_after_s=0.25), 503, "SERVICE_OVERLOADED"),
        (Unavailable("no", retry_after_s=0.25), 503, "SERVICE_OVERLOADED"),
        (WorkerLost("no", retry_after_s=0.25), 503, "SERVICE_OVERLOADED"),
        (DeadlinePassed("no"), 504, "TIMEOUT"),
        (MillraceError("no"), 500, "INTERNAL_ERROR"),
    ],
)
def test_an_error_has_its_status_and_code(error: MillraceError, status: int, code: str) -> None:
    answer = problem_response(error, "req_1", PATH)
    body: dict[str, Any] = json.loads(bytes(answer.body))
    assert (answer.status_code, body.pop("error")) == (status, code)
    assert body.pop("retry_after_ms", None) == (250 if error.retry_after_s else None)
    assert body == {"message": "no", "request_id": "req_1"}
    assert answer.media_type == "application/json"


def test_other_paths_keep_their_errors() -> None:
    assert b'"status":429' in bytes(problem_response(TooLate("no"), "req_1", "/infer").body)
