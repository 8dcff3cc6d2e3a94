"""OpenAI's own document of the Responses API: schemathesis makes up requests from it and from what
is served, and every answer is as documented."""

from typing import Any

import pytest

from ops.supervisor.platform import Platform
from tests.acceptance.compat.responses import responses
from tests.acceptance.compat.responses.responses import CALL, SAID, TOOLS
from tests.support.clients import bearer
from tests.support.documented import CHECKS, SPECS, ask_often, check
from tests.support.documented import operations as documented
from tests.support.platforms import CHATTING
from tests.support.wait import PATIENCE_S

SPEC = SPECS / "openai-chat-completions-responses.openapi.json"
CREATE, RETRIEVE = "POST /responses", "GET /responses/{response_id}"
OPERATIONS = [
    CREATE,
    RETRIEVE,
    "DELETE /responses/{response_id}",
    "GET /responses/{response_id}/input_items",
    "POST /responses/{response_id}/cancel",
]
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
    return bearer(key)


@pytest.fixture(scope="module")
def operations(platform: Platform) -> dict[str, Any]:
    return documented(SPEC, f"{platform.url}/v1")


@pytest.mark.parametrize("label", OPERATIONS)
def test_every_answer_is_as_openai_documents_it(
    operations: dict[str, Any], headers: dict[str, str], label: str
) -> None:
    checks = CHECKS[:1] if label in UNWRAPPED else CHECKS

    ask_often(operations[label], lambda case: check(case, headers, PATIENCE_S, checks), 15)


@pytest.mark.parametrize("body", BODIES)
def test_a_response_that_succeeds_is_as_openai_documents_it(
    operations: dict[str, Any], headers: dict[str, str], body: dict[str, Any]
) -> None:
    case = operations[CREATE].Case(body={"model": "chatter", **body}, media_type="application/json")
    made = check(case, headers, PATIENCE_S)
    assert made.status_code == 200, made.text
    # Items of the input are messages, which its discriminator of such items doesn't know.
    case = operations[RETRIEVE].Case(path_parameters={"response_id": made.json()["id"]})
    found = check(case, headers, PATIENCE_S)
    assert found.status_code == 200, found.text
