"""What the ledger says of a time: sums, by whatever is asked."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Literal

from sqlalchemy import RowMapping, text

from jobs.store.db import Tx

By = Literal["tenant", "model", "version", "class", "kind", "day", "month"]

_BY: Mapping[By, str] = {
    "tenant": "tenant_id",
    "model": "model",
    "version": "version",
    "class": "class",
    "kind": "kind",
    "day": "to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
    "month": "to_char(at AT TIME ZONE 'UTC', 'YYYY-MM')",
}
BY: tuple[By, ...] = tuple(_BY)

# Units of two models may be of two kinds: so their versions are always told apart.
_SUMS = """
    SELECT {chosen} model AS of_model, version AS of_version, sum(succeeded) AS succeeded,
           sum(failed) AS failed, sum(units) AS units, sum(device_us) AS device_us,
           sum(amount) AS amount
    FROM usage
    WHERE (:tenant = '*' OR tenant_id = :tenant)
      AND at >= CAST(:since AS date) AND at < CAST(:until AS date)
    GROUP BY {keys} model, version ORDER BY {keys} model, version
"""


def sums(tx: Tx, tenant: str, by: Sequence[By], since: date, until: date) -> Sequence[RowMapping]:
    """Of one tenant or EVERYBODY, from a day (UTC) to another, which is not included; in the order
    of `by`, a model's versions apart."""
    chosen = "".join(f'{_BY[name]} AS "by_{name}", ' for name in by)
    keys = "".join(f"{_BY[name]}, " for name in by)
    query = text(_SUMS.format(chosen=chosen, keys=keys))
    return tx.execute(query, {"tenant": tenant, "since": since, "until": until}).mappings().all()
