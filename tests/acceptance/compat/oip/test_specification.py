"""The Open Inference Protocol's own document, against a platform that runs."""

from typing import Any

import httpx
import pytest
from schemathesis.specs.openapi.checks import positive_data_acceptance, status_code_conformance

from ops.supervisor.platform import Platform
from tests.acceptance.compat.oip import oip
from tests.support.documented import SPECS, ask_often, operations
from tests.support.platforms import CHATTING
from tests.support.wait import PATIENCE_S

PLATFORM = CHATTING
MODELS = oip.MODELS

SPEC = SPECS / "open-inference-protocol.openapi.yaml"


OURS = {"MODEL_NAME": "simple", "MODEL_VERSION": "1"}


@pytest.mark.skipif(not SPEC.exists(), reason="the specification in ../shared/spec is not here")
@pytest.mark.parametrize("named", [False, True], ids=["any model", "a model that is there"])
def test_the_specification_holds(
    platform: Platform, http: httpx.Client, headers: dict[str, str], named: bool
) -> None:
    found = operations(SPEC, platform.url).values()
    assert len(found) == 9
    for operation in found:
        there = named or "{" not in operation.path
        statuses = asked_for(operation, headers, named)
        assert (200 in statuses) == (there and operation.method == "get"), operation.label


def asked_for(operation: Any, headers: dict[str, str], named: bool) -> set[int]:
    """The statuses of answers that are as specified. It documents none for a model that isn't
    there, and can't say which tensors one takes; all else is checked either way."""
    excluded = [positive_data_acceptance] if named else [status_code_conformance]
    statuses: set[int] = set()

    def holds(case: Any) -> None:
        if named:
            case.path_parameters = {name: OURS[name] for name in case.path_parameters}
        found = case.call_and_validate(
            headers=headers, timeout=PATIENCE_S, excluded_checks=excluded
        )
        statuses.add(found.status_code)

    ask_often(operation, holds, 20)
    return statuses
