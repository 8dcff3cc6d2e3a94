"""Tensor inputs of a model: its signature, and the check of an input against it."""

from functools import lru_cache
from typing import Any

from jobs.models.inputs.signature import Signature, read, specs
from jobs.models.inputs.tensors import TensorError
from jobs.models.model import Model


def most_rows(model: Model) -> int:
    """Returns the most rows of one request: those of a launch."""
    return model.limits.max_tokens or model.limits.most_rows


@lru_cache(1024)
def signature(model: Model) -> Signature:
    """Returns the signature of a model that declares one."""
    inputs, outputs = specs(model.options["inputs"]), specs(model.options["outputs"])
    return Signature(inputs, outputs, most_rows(model))


def refuse(model: Model, value: Any) -> tuple[str, str] | None:
    """Returns (code, message) where this model takes no such input."""
    try:
        read(value, signature(model))
    except TensorError as error:
        return "invalid_tensor", str(error)
    return None
