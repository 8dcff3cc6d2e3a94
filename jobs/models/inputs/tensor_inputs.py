"""Tensor inputs of a model: its signature, and the check of an input against it."""

from functools import lru_cache
from typing import Any

from jobs.models.inputs.tensors import Signature, TensorError, read, specs
from jobs.models.model import Model


def most_rows(model: Model) -> int:
    """Of one request: those of a launch."""
    return model.limits.max_tokens or model.limits.max_batch


@lru_cache(1024)
def signature(model: Model) -> Signature:
    """Of a model that declares one."""
    inputs, outputs = specs(model.options["inputs"]), specs(model.options["outputs"])
    return Signature(inputs, outputs, most_rows(model))


def refuse(model: Model, value: Any) -> tuple[str, str] | None:
    """(code, message) where this model takes no such input."""
    try:
        read(value, signature(model))
    except TensorError as wrong:
        return "invalid_tensor", str(wrong)
    return None
