"""Command that lists what workers serve; its commands change the registry."""

from collections.abc import Iterator, Sequence
from typing import Any

import click

from millrace import Client
from ops.cli.commands.common import client_command, show_list
from ops.cli.lazy_group import LazyGroup

_COMMANDS = {
    "push": (
        "models.registry",
        "Registers a version, with the files of FOLDER, or an adapter of a version.",
    ),
    "apply": ("models.registry", "Registers all entries of a models file, or none."),
    "list": ("models.registry:list_models", "Lists the versions of the registry."),
    "show": ("models.registry:show_model", "Shows the versions, aliases and routes of a model."),
    "alias": ("models.registry", "Points an alias of a model to a version, within a second."),
    "retire": ("models.registry", "Retires a version: nothing new goes to it."),
    "route": ("models.routes", "Shows the routes of model NAME, or sets one."),
    "probe": ("models.probes", "Known answers of versions."),
    "history": ("models.history", "Shows what a model answered, and how fast, over time."),
}

_NONE = (
    "no models are served; declare some in a models file (`millrace init` writes one, "
    "MILLRACE_MODELS names it), or register one: `millrace models push`"
)


@click.group(
    cls=LazyGroup,
    lazy=_COMMANDS,
    invoke_without_command=True,
    epilog="Example: millrace models",
)
@client_command
def models(client: Client, as_json: bool) -> None:
    """Lists model versions, and their state in the workers; its commands change the registry."""
    if click.get_current_context().invoked_subcommand is None:
        found = client.get("/models")["data"]
        show_list(found, _served_lines(found), as_json, _NONE)


def _served_lines(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    for model in found:
        states = ", ".join(f"{count} {state}" for state, count in model["states"].items())
        load = f", loads in {model['load_ms'] / 1000:.1f} s" if model["load_ms"] else ""
        yield f"{model['name']}@{model['version']}: {states or 'no worker'}{load}"
        if model["error"]:
            yield f"    {model['error']}"
