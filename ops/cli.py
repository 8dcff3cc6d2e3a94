"""The command `millrace`. Each command says what it does, with an example, and exits non-zero on
failure; `--json` prints what a program can read."""

from typing import Any

import click
import httpx

from jobs.settings import SettingsError
from ops.client import Refused
from ops.commands import (
    admin,
    calls,
    jobs,
    keys,
    limits,
    measuring,
    models,
    processes,
    simulating,
    usage,
    webhooks,
)


class Cli(click.Group):
    """Turns what users can mend into one clear line, and exits non-zero."""

    def invoke(self, ctx: click.Context) -> Any:
        from ops.embedded import EmbeddedError
        from ops.up import PortTaken

        try:
            return super().invoke(ctx)
        except (SettingsError, Refused, EmbeddedError, PortTaken) as error:
            raise click.ClickException(str(error)) from error
        except httpx.ConnectError as error:
            message = "no api answers there; start one with `millrace up`, or name it with --url"
            raise click.ClickException(message) from error
        except httpx.HTTPError as error:
            raise click.ClickException(f"the api: {error}") from error


@click.group(cls=Cli, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="millrace")
def main() -> None:
    """Durable batch inference with a low-latency path beside it."""


for command in (
    *processes.COMMANDS,
    *jobs.COMMANDS,
    *webhooks.COMMANDS,
    *usage.COMMANDS,
    *calls.COMMANDS,
    *limits.COMMANDS,
    *keys.COMMANDS,
    *admin.COMMANDS,
    *models.COMMANDS,
    *measuring.COMMANDS,
    *simulating.COMMANDS,
):
    main.add_command(command)
