"""Documents of other people's APIs: schemathesis makes up requests from them, and every answer is
as documented."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

SPECS = Path(__file__).parents[3] / "shared" / "spec"
CHECKS = [not_a_server_error, response_schema_conformance, content_type_conformance]


def operations(document: Path, url: str) -> dict[str, Any]:
    read = schemathesis.openapi.from_path(document)
    read.config.update(base_url=url)
    return {found.ok().label: found.ok() for found in read.get_all_operations()}


def ask_often(operation: Any, ask: Callable[[Any], None], examples: int) -> None:
    """Makes up requests, the same in each run."""

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def holds(case: Any) -> None:
        ask(case)

    holds()


def check(
    case: Any, headers: dict[str, str], timeout: float, checks: Sequence[Any] = CHECKS
) -> Any:
    """Sends a request; returns its answer, which is as documented."""
    answer = case.call(headers=headers, timeout=timeout)
    case.validate_response(answer, checks=list(checks), headers=headers)
    return answer
