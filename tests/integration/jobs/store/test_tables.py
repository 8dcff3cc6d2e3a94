"""The description of the tables (jobs/store/tables.py) is what the migrations make."""

import re
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Column, Engine, MetaData, Text, text

from jobs.store import tables
from jobs.store.db import Tx
from tests.support.stores.transactions import transact

# SQLAlchemy reflects a constraint that is NOT VALID (`its_own` of items) by an option it refuses.
pytestmark = pytest.mark.filterwarnings("ignore:Can't validate argument 'dialect_options'")

_INDEXES = text("SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = :schema")


def _is_described(thing: Any, name: str | None, kind: str, *_: Any) -> bool:
    """Partitions are made by the week, and alembic's own table by alembic."""
    partition = re.search(r"_(rest|\d{8})$", name or "")
    return kind != "table" or not (partition or name == "alembic_version")


def differences(tx: Tx, metadata: MetaData) -> list[Any]:
    """Changes that a migration would make to reach the description."""
    options = {"include_object": _is_described, "compare_type": True}
    options |= {"compare_server_default": True}
    found: list[Any] = compare_metadata(MigrationContext.configure(tx, opts=options), metadata)
    return found


def test_the_tables_are_those_that_the_migrations_make(database: Engine) -> None:
    assert transact(database, differences, tables.metadata) == []


def test_every_kind_of_difference_is_found(database: Engine) -> None:
    described = MetaData()
    for table in tables.metadata.tables.values():
        table.to_metadata(described)
    jobs = described.tables["jobs"]
    jobs.append_column(Column("more", Text))
    jobs.c.model.nullable = True
    jobs.c.total.type = Text()
    jobs.c.generation.server_default = None
    described.remove(described.tables["files"])
    slices = described.tables["slices"]
    slices.indexes.remove(next(i for i in slices.indexes if i.name == "slices_leased"))
    found = repr(transact(database, differences, described))
    for kind in (
        "add_column", "modify_nullable", "modify_type", "modify_default", "remove_table",
        "remove_index",
    ):  # fmt: skip
        assert kind in found


def test_indexes_have_the_same_columns_order_and_conditions(database: Engine) -> None:
    """Covers what alembic does not compare: `WHERE`, `INCLUDE`, and the order of a key."""
    with database.connect() as tx:
        made = _indexes(tx, "public")
        tx.execute(text("CREATE SCHEMA described"))
        described = tx.execution_options(schema_translate_map={None: "described"})
        tables.metadata.create_all(described, checkfirst=False)
        found = _indexes(tx, "described")
        tx.rollback()
    assert found == {name: made[name] for name in found}
    own = {table.name for table in tables.metadata.tables.values()}
    assert {name for name, table in made.items() if _table(table) in own} == found.keys()


def _indexes(tx: Tx, schema: str) -> dict[str, str]:
    rows = tx.execute(_INDEXES, {"schema": schema})
    return {row.indexname: row.indexdef.replace(f"{schema}.", "") for row in rows}


def _table(definition: str) -> str:
    found = re.search(r" ON (?:ONLY )?(\w+)", definition)
    assert found
    return found[1]
