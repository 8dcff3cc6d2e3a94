"""OpenAI's own documents: schemathesis makes up requests from them and from what is served, and
every answer is as documented."""

from typing import Any

import pytest

from ops.supervisor.platform import Platform
from tests.acceptance.compat import test_responses as responses
from tests.acceptance.compat.test_responses import CALL, SAID, TOOLS
from tests.support.clients import bearer
from tests.support.documented import CHECKS, SPECS, ask_often, check
from tests.support.documented import operations as documented
from tests.support.platforms import CHATTING
from tests.support.wait import PATIENCE_S

DOCUMENTS = [
    SPECS / "openai-files-batches-embeddings-models.openapi.json",
    SPECS / "openai-chat-completions-responses.openapi.json",
]
CREATE, RETRIEVE = "POST /responses", "GET /responses/{response_id}"
METHODS = {
    "/batches": ("GET", "POST"),
    "/batches/{batch_id}": ("GET",),
    "/batches/{batch_id}/cancel": ("POST",),
    "/files": ("GET", "POST"),
    "/files/{file_id}": ("GET", "DELETE"),
    "/files/{file_id}/content": ("GET",),
    "/models": ("GET",),
    "/models/{model}": ("GET",),
    "/responses": ("POST",),
    "/responses/{response_id}": ("GET", "DELETE"),
    "/responses/{response_id}/cancel": ("POST",),
    "/responses/{response_id}/input_items": ("GET",),
}
OPERATIONS = [f"{method} {path}" for path, methods in METHODS.items() for method in methods]
THERE = {"model": "echo"}
"""What is there to be asked for, by the parameter that names it."""
NOT_AS_DOCUMENTED = {
    "GET /files/{file_id}/content",  # no JSON, whatever the document says
    # shown without the object around errors that OpenAI sends
    "DELETE /responses/{response_id}",
    "POST /responses/{response_id}/cancel",
}
BODIES: list[dict[str, Any]] = [
    {"input": SAID},
    {"input": SAID, "max_output_tokens": 2, "metadata": {"a": "b"}, "instructions": "Be brief."},
    {"input": CALL, "tools": TOOLS, "tool_choice": "auto"},
    {"input": SAID, "include": ["message.output_text.logprobs"], "top_logprobs": 1},
]

missing = [path.name for path in DOCUMENTS if not path.exists()]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"not in ../shared/spec: {missing}")
PLATFORM = CHATTING
MODELS = responses.MODELS


@pytest.fixture(scope="module")
def operations(platform: Platform) -> dict[str, Any]:
    files, responses = (documented(one, f"{platform.url}/v1") for one in DOCUMENTS)
    return files | {label: responses[label] for label in responses if "/responses" in label}


@pytest.mark.parametrize("label", OPERATIONS)
def test_every_answer_is_as_documented(operations: dict[str, Any], key: str, label: str) -> None:
    checks = CHECKS[:1] if label in NOT_AS_DOCUMENTED else CHECKS

    def holds(case: Any) -> None:
        case.path_parameters = {
            name: THERE.get(name, value) for name, value in (case.path_parameters or {}).items()
        }
        check(case, bearer(key), PATIENCE_S, checks)

    ask_often(operations[label], holds, 20)


@pytest.mark.parametrize("body", BODIES)
def test_a_response_that_succeeds_is_as_documented(
    operations: dict[str, Any], key: str, body: dict[str, Any]
) -> None:
    case = operations[CREATE].Case(body={"model": "chatter", **body}, media_type="application/json")
    made = check(case, bearer(key), PATIENCE_S)
    assert made.status_code == 200, made.text
    # Items of the input are messages, which its discriminator of such items doesn't know.
    case = operations[RETRIEVE].Case(path_parameters={"response_id": made.json()["id"]})
    found = check(case, bearer(key), PATIENCE_S)
    assert found.status_code == 200, found.text
