"""The ledger: usage and its price, written by the transaction that writes the results.

It bills the rows that were really inserted: what is retried, redelivered or offered twice counts
once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from jobs.models.pricing import FREE, Price
from jobs.store.db import Tx, array_text, cursor

Billed = tuple[UUID, int, str, str, str]
"""Lease that is billed: job, start of its slice, tenant, model (name@version), class."""

# The statements of the ledger are written out: each inserts, bills and sums up in one round trip.

# Part of a statement that inserts the rows `billed` into `usage`: adds to the month's spend.
_SPEND = """
    INSERT INTO spend (tenant_id, month, amount)
    SELECT tenant_id, CAST(date_trunc('month', at, 'UTC') AS date), sum(amount)
    FROM billed WHERE amount > 0 GROUP BY 1, 2
"""

# Part of the statement that inserts the results `recorded`. The lease of a result is found by the
# place of its seq among the starts of its job (width_bucket): one step for each result, however
# many slices there are.
BILL_ITEMS = f"""
    lease (job_id, start, tenant_id, model, version, class, item, unit, device_us,
           input_token, cached_token, output_token) AS (
        SELECT * FROM unnest(%b::uuid[], %b::int[], %b::text[], %b::text[], %b::text[], %b::text[],
                             %b::numeric[], %b::numeric[], %b::numeric[],
                             %b::numeric[], %b::numeric[], %b::numeric[])
    ), cut AS (
        SELECT job_id, array_agg(start ORDER BY start) AS starts FROM lease GROUP BY job_id
    ), used AS (
        SELECT job_id, starts[width_bucket(seq, starts)] AS start,
               count(*) FILTER (WHERE outcome = 'succeeded') AS succeeded,
               count(*) FILTER (WHERE outcome = 'failed') AS failed,
               coalesce(sum(units) FILTER (WHERE outcome = 'succeeded'), 0) AS units,
               sum(device_us) AS device_us,
               coalesce(sum(input_tokens), 0) AS input_tokens,
               coalesce(sum(cached_tokens), 0) AS cached_tokens,
               coalesce(sum(output_tokens), 0) AS output_tokens
        FROM recorded JOIN cut USING (job_id) GROUP BY 1, 2
    ), billed AS (
        INSERT INTO usage (tenant_id, kind, job_id, start, model, version, class,
                           succeeded, failed, units, device_us,
                           input_tokens, cached_tokens, output_tokens, amount)
        SELECT tenant_id, 'items', job_id, start, model, version, class,
               succeeded, failed, units, used.device_us,
               input_tokens, cached_tokens, output_tokens,
               succeeded * item + units * unit + used.device_us * lease.device_us
               + (input_tokens - cached_tokens) * input_token + cached_tokens * cached_token
               + output_tokens * output_token
        FROM used JOIN lease USING (job_id, start)
        RETURNING tenant_id, at, amount
    )
    {_SPEND}
"""


def item_columns(leases: Sequence[Billed], prices: Mapping[str, Price]) -> list[object]:
    """Returns the parameters of BILL_ITEMS; a model without a price is free."""
    rows = []
    terms: dict[tuple[str, str], tuple[object, ...]] = {}
    for job, start, tenant, model, job_class in leases:
        its = terms.get((model, job_class))
        if its is None:
            name, _, version = model.rpartition("@")
            rates = prices.get(model, FREE).rates(job_class)
            its = terms[model, job_class] = name, version, job_class, *rates
        rows.append((job, start, tenant, *its))
    jobs, starts, tenants, models, versions, classes, *numbers = map(list, zip(*rows, strict=True))
    texts = tenants, models, versions, classes
    return [array_text(jobs), array_text(starts), *texts, *map(array_text, numbers)]


@dataclass(frozen=True, slots=True)
class Minute:
    """Calls of one tenant, model and class that were answered in one minute."""

    at: datetime  #: the minute
    tenant: str  #: tenant of the calls
    model: str  #: name of the model
    version: str  #: its version
    job_class: str  #: scheduling class
    succeeded: int  #: calls that succeeded
    failed: int  #: calls that failed
    units: int  #: units of those that succeeded
    device_us: int  #: device time of all, µs
    input_tokens: int = 0  #: tokens of all prompts
    cached_tokens: int = 0  #: of those, cached ones
    output_tokens: int = 0  #: generated tokens of all


# A minute is unique: one that is moved here twice is billed once (ON CONFLICT).
_BILL_CALLS = f"""
    WITH minute (at, tenant_id, model, version, class, succeeded, failed, units, device_us,
                 input_tokens, cached_tokens, output_tokens,
                 call, unit, device, input_token, cached_token, output_token) AS (
        SELECT * FROM unnest(%b::timestamptz[], %b::text[], %b::text[], %b::text[], %b::text[],
                             %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[],
                             %b::bigint[], %b::bigint[], %b::bigint[],
                             %b::numeric[], %b::numeric[], %b::numeric[],
                             %b::numeric[], %b::numeric[], %b::numeric[])
    ), billed AS (
        INSERT INTO usage (at, tenant_id, kind, model, version, class,
                           succeeded, failed, units, device_us,
                           input_tokens, cached_tokens, output_tokens, amount)
        SELECT at, tenant_id, 'calls', model, version, class, succeeded, failed, units, device_us,
               input_tokens, cached_tokens, output_tokens,
               succeeded * call + units * unit + device_us * device
               + (input_tokens - cached_tokens) * input_token + cached_tokens * cached_token
               + output_tokens * output_token
        FROM minute
        ON CONFLICT DO NOTHING
        RETURNING tenant_id, at, amount
    )
    {_SPEND}
"""


def bill_calls(tx: Tx, minutes: Sequence[Minute], price: Price) -> None:
    """Bills minutes of one model's calls; minutes that are there already stay as they are."""
    names = Minute.__slots__
    rows = [
        (*(getattr(minute, name) for name in names), *price.rates(minute.job_class))
        for minute in minutes
    ]
    if rows:
        cursor(tx).execute(_BILL_CALLS, [list(column) for column in zip(*rows, strict=True)])
