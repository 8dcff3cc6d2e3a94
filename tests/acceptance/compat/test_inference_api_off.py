"""POST /api/inference where no model is named for it."""

import httpx

from tests.support.platforms import GENERATING

PLATFORM = GENERATING


def test_it_is_off_until_a_model_is_named(http: httpx.Client) -> None:
    answer = http.post("/api/inference", json={"input": "hello"})
    assert (answer.status_code, answer.json()["error"]) == (404, "NOT_FOUND")
    assert "MILLRACE_INFERENCE_MODEL" in answer.json()["message"]
