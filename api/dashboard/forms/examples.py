"""Example inputs of models, by what they take."""

import math
from typing import Any

from jobs.models.inputs import tensor_inputs
from jobs.models.inputs.signature import Spec
from jobs.models.model import Model

IMAGE = "a JPEG or PNG in base64"
"""Stands for an image, which is too long to show."""

_MOST_ELEMENTS = 256  # of a tensor that is shown
_BY_TASK: dict[str, Any] = {
    "embedding": "how do I parse JSON",
    "chat": {"messages": [{"role": "user", "content": "hello"}]},
    "classification": "what a pleasant surprise",
    "tokens": "Ada Lovelace lived in London",
    "reranking": {"query": "parse JSON", "documents": ["json.loads", "csv.reader"]},
    "image_classification": IMAGE,
}


def example_input(model: Model) -> Any:
    """Returns an input that the model takes; an image is described instead."""
    if model.effective_task == "tensors":
        inputs = tensor_inputs.signature(model).inputs
        return {"inputs": {name: example_tensor(spec) for name, spec in inputs.items()}}
    task = "chat" if model.spec.generates else model.effective_task
    return _BY_TASK.get(task, "a text")


def example_tensor(spec: Spec) -> dict[str, Any]:
    """Returns zeros of one row; of a large tensor the data are left to the caller."""
    shape = [1, *(max(1, size) for size in spec.shape[1:])]
    if math.prod(shape) > _MOST_ELEMENTS:
        return {"datatype": spec.datatype, "shape": shape, "data": []}
    return spec.zeros(1).as_json(plain=True)
