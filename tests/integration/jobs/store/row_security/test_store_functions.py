"""Row-level security without the filters of the store's own functions: no foreign row shows."""

import ast
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import IntegrityError

from jobs.errors import MillraceError
from jobs.store.jobs import read
from jobs.store.jobs.read import JobRow
from jobs.store.tenancy import acting
from tests.integration.jobs.store.row_security.store_calls import (
    NO_QUERIES,
    REVEALS,
    STORE_CALLS,
    StoreCall,
)
from tests.integration.jobs.store.row_security.tenants import (
    ALICE,
    MALLORY,
    MARK,
    everything,
    forget,
)
from tests.support.cases import each
from tests.support.stores.transactions import transact


@pytest.fixture
def unfiltered(api: Engine) -> Engine:
    """The same, with every filter of the store by tenant taken out."""
    event.listen(api, "before_cursor_execute", _unfilter, retval=True)
    return api


_FILTER = re.compile(r"(\w+\.)?tenant_id = %\(tenant\)s(::\w+)?")


def _unfilter(
    connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
) -> tuple[str, Any]:
    return _FILTER.sub("true", statement), parameters


def test_without_the_stores_filters_no_foreign_row_shows_and_none_is_changed(
    database: Engine, unfiltered: Engine, alices: UUID
) -> None:
    job = transact(database, read.one, ALICE, alices)
    before = everything(database)
    for name, case in each(STORE_CALLS):
        with case:
            found = _done(unfiltered, STORE_CALLS[name], job)
            assert MARK not in repr(found)
            assert not (name in REVEALS and found)
            assert everything(database) == before
        forget(database, MALLORY)


def _done(api: Engine, call: StoreCall, job: JobRow) -> object:
    """Returns its result; of an error, the text if that names Alice."""
    try:
        with acting(api, MALLORY) as tx:
            return call(tx, job)
    except (MillraceError, IntegrityError) as error:
        return str(error) if MARK in str(error) else None


def test_where_rows_are_not_secured_these_calls_show_them(database: Engine, alices: UUID) -> None:
    """Shows that the test above can fail."""
    job = transact(database, read.one, ALICE, alices)
    event.listen(database, "before_cursor_execute", _unfilter, retval=True)
    for name, case in each(sorted(REVEALS)):
        with case, acting(database, MALLORY) as tx:
            assert STORE_CALLS[name](tx, job)
            tx.rollback()


def test_every_function_of_the_store_that_the_api_calls_is_among_those() -> None:
    found = {name for name in store_functions() if not name.startswith("db.")}
    assert found - NO_QUERIES == STORE_CALLS.keys()


def store_functions() -> set[str]:
    """Names that api/ and the use cases in jobs/ take from jobs/store/, as `module.name`."""
    root = Path(__file__).parents[5]
    found: set[str] = set()
    for path in (*root.glob("api/**/*.py"), *root.glob("jobs/usecases/**/*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        modules: dict[str, str] = {}
        for node in nodes:
            if not isinstance(node, ast.ImportFrom) or not str(node.module).startswith(STORE):
                continue
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if root.joinpath(*name.split(".")).with_suffix(".py").exists():
                    modules[alias.asname or alias.name] = _short(name)
                else:
                    found.add(f"{_short(str(node.module))}.{alias.name}")
        found |= {
            f"{modules[node.value.id]}.{node.attr}"
            for node in nodes
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in modules
        }
    assert len(found) > 50
    return {name for name in found if not name.split(".")[-1].endswith(("Row", "Rows"))}


STORE = "jobs.store"


def _short(module: str) -> str:
    """Without its sub-package, where no other has a module of that name."""
    below = module.removeprefix("jobs.store.")
    return below if below.endswith(".workers") else below.rpartition(".")[2]
