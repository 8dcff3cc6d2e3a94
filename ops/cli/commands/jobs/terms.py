"""Options with the terms of a job, of the commands that submit one."""

from collections.abc import Callable
from typing import Any

import click

from jobs.states import JOB_CLASSES, VERSIONINGS
from ops.cli.commands.common import JsonObject, pairs

_NEVER = "never"

Command = Callable[..., None]


class _Seconds(click.FloatRange):
    """Number of seconds, or `never`."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parses an argument."""
        return value if value == _NEVER else super().convert(value, param, ctx)


_OPTIONS = (
    click.option("--params", type=JsonObject(), help="Parameters of the model, a JSON object."),
    click.option("--metadata", multiple=True, callback=pairs, help="NAME=VALUE; may be repeated."),
    click.option("--name", help="Name to find the job by."),
    click.option(
        "--label",
        "labels",
        multiple=True,
        callback=pairs,
        help="NAME=VALUE to find the job by; may be repeated.",
    ),
    click.option("--class", "class", type=click.Choice(JOB_CLASSES), help="Scheduling class."),
    click.option("--priority", type=int, help="-100 to 100, higher first."),
    click.option(
        "--expires-in-s", type=_Seconds(0, min_open=True), help="Or `never`: best effort."
    ),
    click.option("--on-invalid", type=click.Choice(["reject", "fail_item"]), help="Invalid items."),
    click.option(
        "--versioning",
        type=click.Choice(VERSIONINGS),
        help="`routed`: slices go by the model's routes.",
    ),
    click.option("--webhook", help="URL to notify of its end."),
)


def term_options(function: Command) -> Command:
    """Passes a command the terms of a job."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def given_terms(terms: dict[str, Any]) -> dict[str, Any]:
    """Returns the terms that were given, as the body of a request has them."""
    given = {name: value for name, value in terms.items() if value not in (None, {})}
    if "webhook" in given:
        given["webhook"] = {"url": given["webhook"]}
    if given.get("expires_in_s") == _NEVER:
        given["expires_in_s"] = None
    return given
