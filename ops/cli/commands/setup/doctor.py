"""Command that checks a machine."""

import sys
from collections.abc import Iterator
from dataclasses import asdict

import click

from jobs import settings
from jobs.models import models_file
from jobs.settings import Settings, SettingsError
from ops.cli.commands.common import as_json_option, show
from ops.cli.setup import machine, services
from ops.cli.setup.check import Check


@click.command(epilog="Example: millrace doctor")
@as_json_option
def doctor(as_json: bool) -> None:
    """Checks this machine: port, disk, memory, device, services; says what to mend.

    Exits with 1 if there is a problem; warnings are no problems.
    """
    found = list(_checks())
    problems = sum(check.state == "problem" for check in found)
    lines = [check.line for check in found]
    if not problems:
        lines.append("this machine can run `millrace up`")
    show({"problems": problems, "checks": [asdict(check) for check in found]}, lines, as_json)
    sys.exit(1 if problems else 0)


def _checks() -> Iterator[Check]:
    try:
        configured = settings.load()
    except SettingsError as error:
        for problem in error.problems:
            yield Check("settings", "problem", problem, "`millrace check` explains every setting")
        return
    yield _models(configured)
    yield from machine.checks(configured)
    yield from services.checks(configured)


def _models(configured: Settings) -> Check:
    try:
        models = models_file.load(configured.models)
        problems = [problem for model in models for problem in model.file_problems()]
    except SettingsError as error:
        problems = error.problems
    if problems:
        return Check("models", "problem", "; ".join(problems), "`millrace check` lists them all")
    source = str(configured.models or "samples, since MILLRACE_MODELS is not set")
    return Check("models", "ok", f"{len(list(models))} models ({source})")
