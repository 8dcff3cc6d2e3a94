"""Sums of the ledger over a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Literal

from sqlalchemy import func, select

from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.tables import usage as table

By = Literal["tenant", "model", "version", "class", "kind", "day", "month"]

_UTC = func.timezone("UTC", table.c.at)
_BY: Mapping[By, Any] = {
    "tenant": table.c.tenant_id,
    "model": table.c.model,
    "version": table.c.version,
    "class": table.c.job_class,
    "kind": table.c.kind,
    "day": func.to_char(_UTC, "YYYY-MM-DD"),
    "month": func.to_char(_UTC, "YYYY-MM"),
}
BY: tuple[By, ...] = tuple(_BY)
_SUMMED = (
    "succeeded", "failed", "units", "device_us", "input_tokens", "cached_tokens", "output_tokens",
    "amount",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Usage of one version of a model in one group."""

    group: tuple[str, ...]  #: values that it was grouped by, in their order
    model: str  #: name of the model
    version: str  #: its version
    succeeded: int  #: items and calls that succeeded
    failed: int  #: items and calls that failed
    units: int  #: units of what succeeded
    device_us: int  #: device time of all, µs
    input_tokens: int  #: tokens of all prompts
    cached_tokens: int  #: of those, cached ones
    output_tokens: int  #: generated tokens of all
    amount: Decimal  #: price


def sums(
    tx: Tx, tenant: str, by: Sequence[By], since: date, until: date | None = None
) -> Sequence[UsageRow]:
    """Sums up the usage of one tenant or EVERYBODY, in the order of `by`.

    since, until: days (UTC) or times, `until` excluded; None: until now. Versions of
    a model are apart, since their units may differ.
    """
    keys = select(*(_BY[name].label(f"by_{n}") for n, name in enumerate(by)), table).where(
        queries.is_own_or_all(table, tenant), table.c.at >= since
    )
    if until:
        keys = keys.where(table.c.at < until)
    u = keys.subquery()
    groups = [*(u.c[f"by_{n}"] for n in range(len(by))), u.c.model, u.c.version]
    query = select(*groups, *(func.sum(u.c[name]) for name in _SUMMED))
    rows = tx.execute(query.group_by(*groups).order_by(*groups))
    return [UsageRow(tuple(row[: len(by)]), *row[len(by) :]) for row in rows]
