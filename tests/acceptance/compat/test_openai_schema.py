"""OpenAI's own document of files, batches and models: schemathesis makes up requests from it, and
finds nothing."""

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
from tests.support.keys import make_key_at
from tests.support.platforms import CLOSED
from tests.support.wait import PATIENCE_S

SPEC = Path(__file__).parents[4] / "shared/spec/openai-files-batches-embeddings-models.openapi.json"
OPERATIONS = [
    "DELETE /files/{file_id}",
    "GET /batches",
    "GET /batches/{batch_id}",
    "GET /files",
    "GET /files/{file_id}",
    "GET /files/{file_id}/content",
    "GET /models",
    "GET /models/{model}",
    "POST /batches",
    "POST /batches/{batch_id}/cancel",
    "POST /files",
]
CHECKS = [not_a_server_error, response_schema_conformance, content_type_conformance]
THERE = {"model": "echo"}
"""What is there to be asked for, by the parameter that names it."""

pytestmark = pytest.mark.skipif(not SPEC.exists(), reason="../shared/spec is not here")

PLATFORM = CLOSED


@pytest.fixture(scope="module")
def key(platform: Platform) -> dict[str, str]:
    made, _ = make_key_at(platform.settings.database_url, "acme")
    return {"Authorization": f"Bearer {made}"}


@pytest.fixture(scope="module")
def operations(platform: Platform) -> dict[str, Any]:
    document = schemathesis.openapi.from_path(SPEC)
    document.config.update(base_url=f"{platform.url}/v1")
    return {found.ok().label: found.ok() for found in document.get_all_operations()}


@pytest.mark.parametrize("label", OPERATIONS)
def test_every_answer_is_as_openai_documents_it(
    operations: dict[str, Any], key: dict[str, str], label: str
) -> None:
    # A file's content is no JSON, whatever the document says.
    checks = CHECKS[:1] if label.endswith("/content") else CHECKS

    @settings(
        max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(case=operations[label].as_strategy())
    def holds(case: Any) -> None:
        case.path_parameters = {
            name: THERE.get(name, value) for name, value in (case.path_parameters or {}).items()
        }
        response = case.call(headers=key, timeout=PATIENCE_S)
        case.validate_response(response, checks=checks, headers=key)

    holds()
