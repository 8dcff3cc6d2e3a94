"""Command `millrace`: each command has an example, and exits non-zero on failure."""

from typing import Any

import click

from ops.cli.commands.admin import admin, keys, limits, usage, workers
from ops.cli.commands.common import INTERRUPTED, in_words
from ops.cli.commands.jobs import calls, jobs, results, submit, webhooks, why
from ops.cli.commands.platform import bench, completion, models, processes, simulate


class Cli(click.Group):
    """Reports errors that users can fix in one line, and exits non-zero."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command."""
        from ops.embedded.errors import EmbeddedError
        from ops.supervisor.platform import PortTaken

        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None
        except (EmbeddedError, PortTaken) as error:
            raise click.ClickException(str(error)) from error
        except Exception as error:
            message = in_words(error)
            if message is None:
                raise
            raise click.ClickException(message) from error


@click.group(cls=Cli, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="millrace")
def main() -> None:
    """Durable batch inference with a low-latency path for single calls."""


for command in (
    *processes.COMMANDS,
    *submit.COMMANDS,
    *jobs.COMMANDS,
    *results.COMMANDS,
    *webhooks.COMMANDS,
    *workers.COMMANDS,
    *usage.COMMANDS,
    *calls.COMMANDS,
    *limits.COMMANDS,
    *keys.COMMANDS,
    *admin.COMMANDS,
    *models.COMMANDS,
    *why.COMMANDS,
    *bench.COMMANDS,
    *simulate.COMMANDS,
    *completion.COMMANDS,
):
    main.add_command(command)
