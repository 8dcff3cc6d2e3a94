"""One call, one small job and one slice cost no more than budgets.json says."""

import json
import subprocess
import sys

import pytest

from tests.budgets.measure import BUDGETS

_TOLERANCE = 1.02
_BYTECODE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.timeout(600)
def test_no_operation_costs_more_than_its_budget() -> None:
    stored = json.loads(BUDGETS.read_text())
    if stored["python"] != _BYTECODE:
        pytest.skip(f"the budgets were counted on Python {stored['python']}, this is {_BYTECODE}")
    command = [sys.executable, "-m", "tests.budgets.measure"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=500, check=True)
    measured = json.loads(done.stdout)
    above = {
        f"{operation}.{name}": (counted, budget)
        for operation, budgets in stored["counts"].items()
        for name, budget in budgets.items()
        if (counted := measured[operation][name]) > budget * _TOLERANCE
    }
    assert not above, (
        f"counted and allowed: {above}. Make it cheaper, or store the new counts with the reason: "
        "python -m tests.budgets.measure --write WHY"
    )
