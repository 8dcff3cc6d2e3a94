"""Command that writes what came to this platform into a file: `millrace history export`."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from jobs import clock
from jobs.scaling.forecast import BIN_S
from jobs.store.billing import arrivals
from jobs.store.db import Tx
from jobs.store.scaling import arrivals as pool_arrivals
from ops.cli.admin_database import admin_transaction
from ops.cli.commands.common import as_json_option, show
from ops.simulation import history as histories
from ops.simulation.history import Row

_DAYS = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"])
_DEFAULT = timedelta(days=14)


@click.group(epilog="Example: millrace history export arrivals.csv")
def history() -> None:
    """Exports what came to this platform, for `plan` and `simulate`."""


@history.command(epilog="Example: millrace history export arrivals.parquet --from 2026-11-01")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--from", "since", type=_DAYS, help="Beginning, UTC; default: 14 days ago.")
@click.option("--to", "until", type=_DAYS, help="End, UTC; default: now.")
@as_json_option
def export(path: Path, since: datetime | None, until: datetime | None, as_json: bool) -> None:
    """Writes calls and items by minute and model, and the work of pools, to FILE (.csv, .parquet).

    Reads the database itself, as `millrace keys` does.
    """
    now = clock.now()
    first = since.replace(tzinfo=UTC) if since else now - _DEFAULT
    last = until.replace(tzinfo=UTC) if until else now
    if first >= last:
        raise click.UsageError("--from must be before --to")
    with admin_transaction() as tx:
        rows = list(_rows(tx, first, last))
    count = histories.write(path, rows)
    said = f"{count:,} rows from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC in {path}"
    show({"path": str(path), "rows": count}, said, as_json)


def _rows(tx: Tx, since: datetime, until: datetime) -> Iterator[Row]:
    for minute in arrivals.calls(tx, since, until):
        yield _row(minute, "calls")
    for minute in arrivals.items(tx, since, until):
        yield _row(minute, "items")
    for pool in pool_arrivals.pools(tx):
        for bin, work in pool_arrivals.read(tx, pool).work.items():
            if since.timestamp() <= bin * BIN_S < until.timestamp():
                yield Row(bin * BIN_S, BIN_S, "work", pool, round(work, 6))


def _row(minute: arrivals.Minute, kind: histories.Kind) -> Row:
    name = f"{minute.model}@{minute.version}"
    figures = round(minute.units, 3), round(minute.device_us / 1e6, 6)
    return Row(minute.at_s, arrivals.MINUTE_S, kind, name, minute.count, *figures)
