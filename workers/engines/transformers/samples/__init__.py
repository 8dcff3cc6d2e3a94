"""Models that the engine fetches itself, by their names."""

from pathlib import Path

from workers.engines.transformers.samples import smollm2

_FOLDERS = {"smollm2": smollm2.folder}


def folder(name: str) -> Path:
    """Returns the folder of a model, fetched if it isn't here. Raises RuntimeError."""
    return _FOLDERS[name]()
