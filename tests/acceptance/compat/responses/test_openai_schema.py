"""OpenAI's own document of the Responses API: schemathesis makes up requests from it and from what
is served, and every answer is as documented."""

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
)

from ops.supervisor.platform import Platform
from tests.acceptance.compat.responses import responses
from tests.acceptance.compat.responses.responses import CALL, SAID, TOOLS
from tests.support.platforms import CHATTING
from tests.support.wait import PATIENCE_S

SPEC = Path(__file__).parents[5] / "shared/spec/openai-chat-completions-responses.openapi.json"
CREATE, RETRIEVE = "POST /responses", "GET /responses/{response_id}"
OPERATIONS = [
    CREATE,
    RETRIEVE,
    "DELETE /responses/{response_id}",
    "GET /responses/{response_id}/input_items",
    "POST /responses/{response_id}/cancel",
]
CHECKS = [not_a_server_error, response_schema_conformance, content_type_conformance]
UNWRAPPED = ("DELETE /responses/{response_id}", "POST /responses/{response_id}/cancel")
"""Operations whose errors the document shows without the object around them that OpenAI sends."""
BODIES: list[dict[str, Any]] = [
    {"input": SAID},
    {"input": SAID, "max_output_tokens": 2, "metadata": {"a": "b"}, "instructions": "Be brief."},
    {"input": CALL, "tools": TOOLS, "tool_choice": "auto"},
    {"input": SAID, "include": ["message.output_text.logprobs"], "top_logprobs": 1},
]

pytestmark = pytest.mark.skipif(not SPEC.exists(), reason="../shared/spec is not here")
PLATFORM = CHATTING
MODELS = responses.MODELS


@pytest.fixture(scope="module")
def headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def operations(platform: Platform) -> dict[str, Any]:
    document = schemathesis.openapi.from_path(SPEC)
    document.config.update(base_url=f"{platform.url}/v1")
    return {found.ok().label: found.ok() for found in document.get_all_operations()}


@pytest.mark.parametrize("label", OPERATIONS)
def test_every_answer_is_as_openai_documents_it(
    operations: dict[str, Any], headers: dict[str, str], label: str
) -> None:
    checks = CHECKS[:1] if label in UNWRAPPED else CHECKS

    @settings(
        max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(case=operations[label].as_strategy())
    def holds(case: Any) -> None:
        response = case.call(headers=headers, timeout=PATIENCE_S)
        case.validate_response(response, checks=checks, headers=headers)

    holds()


@pytest.mark.parametrize("body", BODIES)
def test_a_response_that_succeeds_is_as_openai_documents_it(
    operations: dict[str, Any], headers: dict[str, str], body: dict[str, Any]
) -> None:
    case = operations[CREATE].Case(body={"model": "chatter", **body}, media_type="application/json")
    made = case.call(headers=headers, timeout=PATIENCE_S)
    assert made.status_code == 200, made.text
    case.validate_response(made, checks=CHECKS, headers=headers)
    id = made.json()["id"]
    # Items of the input are messages, which its discriminator of such items doesn't know.
    case = operations[RETRIEVE].Case(path_parameters={"response_id": id})
    found = case.call(headers=headers, timeout=PATIENCE_S)
    assert found.status_code == 200, found.text
    case.validate_response(found, checks=CHECKS, headers=headers)
