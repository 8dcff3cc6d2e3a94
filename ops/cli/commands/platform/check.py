"""Commands that check the configuration and prepare the database."""

import sys

import click

from jobs.settings import SettingsError
from jobs.store import db
from migrations.run import migrate as run_migrations
from ops.cli import check as checks
from ops.cli.commands.common import as_json_option, show
from ops.embedded import defaults


@click.command(epilog="Example: millrace migrate")
@as_json_option
def migrate(as_json: bool) -> None:
    """Brings the database's schema up to date. Safe to repeat, and to run several at once."""
    run_migrations(db.connect(defaults.load().database_url, pool_size=1))
    show({"up_to_date": True}, "the database is up to date", as_json)


@click.command(epilog="Example: millrace check --json")
@click.option("--invariants", is_flag=True, help="Check the invariants of the database.")
@as_json_option
def check(invariants: bool, as_json: bool) -> None:
    """Shows the configuration and all its problems."""
    problems = checks.problems()
    if invariants:
        if problems:
            raise SettingsError(problems)
        sys.exit(_check_invariants(as_json))
    settings = [] if problems else list(checks.setting_values(defaults.load()))
    values = {setting.name: setting.value for setting in settings}
    lines = [f"{each.name:30} {each.value or '-':40} {each.help}" for each in settings]
    show({"problems": problems, "settings": values}, lines, as_json)
    if not as_json:
        for problem in problems:
            click.echo(f"problem: {problem}", err=True)
    sys.exit(1 if problems else 0)


def _check_invariants(as_json: bool) -> int:
    """Prints each invariant and its violations; returns the exit status."""
    results = list(checks.violations(defaults.load()))
    holds = not any(violations for _, violations in results)
    rows = [checks.as_json(invariant, violations) for invariant, violations in results]
    lines = [line for result in results for line in checks.lines(*result)]
    show({"holds": holds, "invariants": rows}, lines, as_json)
    return 0 if holds else 1
