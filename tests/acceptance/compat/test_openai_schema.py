"""OpenAI's own document of files, batches and models: schemathesis makes up requests from it, and
finds nothing."""

from typing import Any

import pytest

from ops.supervisor.platform import Platform
from tests.support.clients import bearer
from tests.support.documented import CHECKS, SPECS, ask_often, check
from tests.support.documented import operations as documented
from tests.support.platforms import CLOSED
from tests.support.wait import PATIENCE_S

SPEC = SPECS / "openai-files-batches-embeddings-models.openapi.json"
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
THERE = {"model": "echo"}
"""What is there to be asked for, by the parameter that names it."""

pytestmark = pytest.mark.skipif(not SPEC.exists(), reason="../shared/spec is not here")

PLATFORM = CLOSED


@pytest.fixture(scope="module")
def operations(platform: Platform) -> dict[str, Any]:
    return documented(SPEC, f"{platform.url}/v1")


@pytest.mark.parametrize("label", OPERATIONS)
def test_every_answer_is_as_openai_documents_it(
    operations: dict[str, Any], key: str, label: str
) -> None:
    # A file's content is no JSON, whatever the document says.
    checks = CHECKS[:1] if label.endswith("/content") else CHECKS

    def holds(case: Any) -> None:
        case.path_parameters = {
            name: THERE.get(name, value) for name, value in (case.path_parameters or {}).items()
        }
        check(case, bearer(key), PATIENCE_S, checks)

    ask_often(operations[label], holds, 20)
