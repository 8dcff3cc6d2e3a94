"""Plans of the statements that a function of the store sends, with what running them took."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import event

from jobs.store import db

Plan = dict[str, Any]


def explained(tx: db.Tx, act: Callable[[], object], words: str = "") -> list[Plan]:
    """The plans of the statements with these words among those that act sends."""
    plans: list[Plan] = []

    def explain(_: object, cursor: Any, statement: str, values: Any, *more: object) -> None:
        if words in statement:
            with cursor.connection.cursor() as own:
                own.execute("SAVEPOINT explained")
                own.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement, values)
                [[found]] = own.fetchone()
                own.execute("ROLLBACK TO explained")
            plans.append(found["Plan"])

    event.listen(tx, "before_cursor_execute", explain)
    try:
        act()
    finally:
        event.remove(tx, "before_cursor_execute", explain)
    return plans


def blocks(plans: list[Plan]) -> int:
    """The pages that statements look at."""
    return sum(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] for plan in plans)
