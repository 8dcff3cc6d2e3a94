"""Files of inputs, as JSON, one a line."""

from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

import click

from jobs.errors import Invalid, Malformed
from jobs.intake import validation


def read(path: Path) -> list[Any]:
    """Reads inputs: values, or the `input` of objects. Raises ClickException."""
    inputs = []
    content = path.read_bytes().removeprefix(BOM_UTF8)
    for n, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            value = validation.parse_json(line)
        except (Invalid, Malformed) as error:
            raise click.ClickException(f"{path}, line {n}: {error}") from error
        inputs.append(value["input"] if isinstance(value, dict) and "input" in value else value)
    if not inputs:
        raise click.ClickException(f"{path} holds no input")
    return inputs
