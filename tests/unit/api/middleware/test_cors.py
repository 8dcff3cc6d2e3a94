"""Pages of named origins may call the api, those of others may not."""

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.middleware import cors
from tests.unit.api.asking import ask

APP, OTHERS = "https://app.example", "https://evil.example"
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,x-stainless-lang,x-millrace-resume-within",
}


def answered(origins: str, method: str, **headers: str) -> httpx.Response:
    app = FastAPI()

    @app.post("/infer")
    def infer() -> dict[str, str]:
        return {"output": "x"}

    made: Any = cors.allowing(app, origins)
    assert (made is app) == (not origins)
    [answer] = ask(made, (method, "/infer"), headers=headers)
    return answer


@pytest.mark.parametrize("origins", [APP, f"https://b.example, {APP}/", "*"])
def test_a_page_of_a_named_origin_asks_first_and_reads_all_headers(origins: str) -> None:
    first = answered(origins, "OPTIONS", Origin=APP, **PREFLIGHT)
    assert first.status_code == 200
    assert "POST" in first.headers["Access-Control-Allow-Methods"]
    asked = PREFLIGHT["Access-Control-Request-Headers"]
    assert first.headers["Access-Control-Allow-Headers"] == asked
    answer = answered(origins, "POST", Origin=APP)
    for each in (first, answer):
        assert each.headers["Access-Control-Allow-Origin"] in (APP, "*")
        assert "Access-Control-Allow-Credentials" not in each.headers
    assert answer.headers["Access-Control-Expose-Headers"] == "*"
    assert answer.json() == {"output": "x"}


@pytest.mark.parametrize("origins", ["", APP])
def test_a_page_of_another_origin_reads_nothing(origins: str) -> None:
    for method, headers in (("OPTIONS", PREFLIGHT), ("POST", {})):
        answer = answered(origins, method, Origin=OTHERS, **headers)
        assert "Access-Control-Allow-Origin" not in answer.headers
