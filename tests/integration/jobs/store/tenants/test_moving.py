"""Exported tenants that were cut, edited or are another's."""

from typing import Any

import pytest
from sqlalchemy import Engine, insert

from jobs.errors import Conflict
from jobs.store.tables import tenants
from jobs.store.tenants import moving


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda rows: rows.pop("api_keys"), "api_keys"),
        (lambda rows: rows.update(limits=None), "NoneType"),
        (lambda rows: rows.update(tenants=["a"]), "items"),
        (lambda rows: rows["tenants"][0].update(colour="red"), "colour"),
        (lambda rows: rows["tenants"][0].update(created_at="yesterday"), "yesterday"),
        (lambda rows: rows["tenants"][0].pop("tenant_id"), "tenant_id"),
        (lambda rows: rows["tenants"][0].update(tenant_id="other"), "not all rows are of acme"),
    ],
)
def test_changed_rows_are_refused_without_effect(database: Engine, change: Any, why: str) -> None:
    with database.begin() as tx:
        tx.execute(insert(tenants).values(tenant_id="acme", weight=3))
        rows = moving.export_tenant(tx, "acme")
        changed = moving.export_tenant(tx, "acme")
        change(changed)
        with pytest.raises(Conflict, match=why):
            moving.import_tenant(tx, "acme", changed)
        assert moving.export_tenant(tx, "acme") == rows
        assert moving.import_tenant(tx, "acme", rows)["tenants"] == 1
