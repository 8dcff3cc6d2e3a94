"""Slots that tenants share."""

import pytest

from jobs.processes.tenant_slots import TenantSlots


@pytest.mark.parametrize(("slots", "most"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_a_tenant_alone_has_half_of_the_slots(slots: int, most: int) -> None:
    found = TenantSlots(slots)
    for _ in range(most):
        assert found.has_room("a")
        found.take("a")
    assert found.full() == ["a"]
    assert found.has_room("b") == (slots > 1)
    found.give_back("a")
    assert found.full() == []
    assert found.used("a") == most - 1
