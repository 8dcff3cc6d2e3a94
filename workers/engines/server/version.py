"""Version of an inference server, as its program reports it."""

import re
import subprocess
from collections.abc import Mapping, Sequence

_WITHIN_S = 120.0  # large packages are imported
_BETWEEN_WORDS = re.compile(r"[\s(),;:]+")
_MOST_SHOWN = 300  # characters


def check_version(declared: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Raises ValueError unless the declared version is a word of what the command prints."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            timeout=_WITHIN_S,
        )
    except FileNotFoundError:
        raise ValueError(
            f"there is no program {command[0]}: install it, and name it (or the folder of its "
            "virtual environment) in options.program"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"{command[0]} doesn't tell its version: {error}") from error
    said = done.stdout.decode("utf-8", "replace").strip()
    if declared not in _BETWEEN_WORDS.split(said):
        raise ValueError(
            f"{command[0]} is not version {declared}, which options.version declares; it says "
            f"{said[-_MOST_SHOWN:]!r}: install that version, or declare this one under another "
            "version of the model"
        )
