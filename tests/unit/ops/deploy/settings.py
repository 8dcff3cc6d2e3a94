"""What manifests and compose files may say to Millrace."""

from jobs.settings import Settings, is_secret
from ops.cli.main import main

SETTINGS = {f"MILLRACE_{name.upper()}" for name in Settings.model_fields}
SETTINGS |= {
    f"MILLRACE_{name.upper()}_FILE"
    for name, field in Settings.model_fields.items()
    if is_secret(field)
}


def is_command(arguments: list[str]) -> bool:
    """Whether the command line knows this command and these options."""
    command = main.commands.get(arguments[0])
    rest = arguments[1:]
    if rest and (group := getattr(command, "commands", None)):
        command, rest = group.get(rest[0]), rest[1:]
    known = {option for parameter in getattr(command, "params", ()) for option in parameter.opts}
    return command is not None and {word for word in rest if word.startswith("--")} <= known
