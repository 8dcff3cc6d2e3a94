"""The command line: its commands and settings, and commands run in the process of the test, since a
process of its own takes a second."""

import json
from collections.abc import Iterator
from typing import Any

import click
from click.testing import CliRunner, Result

from jobs.settings import Settings, is_secret
from ops.cli.main import main

SETTINGS = {f"MILLRACE_{name.upper()}" for name in Settings.model_fields}
SETTINGS |= {
    f"MILLRACE_{name.upper()}_FILE"
    for name, field in Settings.model_fields.items()
    if is_secret(field)
}


def _walk(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in sorted(group.commands.items()):
        yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from _walk(command, *path, name)


COMMANDS = dict(_walk(main))
"""All commands, groups included, by their full names."""


def is_command(arguments: list[str]) -> bool:
    """Returns True if the command line knows this command and these options."""
    depth = 2 if " ".join(arguments[:2]) in COMMANDS else 1
    command = COMMANDS.get(" ".join(arguments[:depth]))
    known = (
        {option for parameter in command.params for option in parameter.opts} if command else set()
    )
    return command is not None and {a for a in arguments if a.startswith("--")} <= known


def run_millrace(*arguments: str, input: bytes = b"", status: int = 0, **environ: str) -> Result:
    """Runs a command and checks its exit status; environ: environment variables besides ours."""
    done = CliRunner().invoke(main, arguments, input=input, env=environ)
    assert done.exit_code == status, (done.output, done.exception)
    return done


def json_of(*arguments: str, status: int = 0) -> Any:
    """What a command prints with --json."""
    return json.loads(run_millrace(*arguments, "--json", status=status).stdout)
