"""Which tensors a model takes and gives here: those that it declares; of a model of texts, one
tensor of texts, each of which is a call of its own."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import orjson

from jobs.errors import Malformed, UnknownModel
from jobs.models.inputs import tensor_inputs
from jobs.models.inputs.signature import Signature, Spec
from jobs.models.inputs.tensors import BYTES, DTYPES, Tensor
from jobs.models.model import Model
from jobs.models.registry import Registry

TEXT = "text"
_OUTPUT, _EMBEDDING = "output", "embedding"
_OF_TEXTS = frozenset({"any", "text", "embedding", "classification", "tokens"})


def models_of(models: Registry, name: str, version: str = "") -> list[Model]:
    """What a path means, the one declared last first. Raises UnknownModel."""
    if version and not models.get(f"{name}@{version}"):
        known = ", ".join(model.version for model in models.versions(name))
        raise UnknownModel(f"no version {version!r} of {name!r} is served here; there are: {known}")
    return models.versions(f"{name}@{version}" if version else name)


def of_texts(model: Model) -> bool:
    return model.effective_task in _OF_TEXTS


@lru_cache(1024)
def signature(model: Model) -> Signature:
    """Without any inputs where it can't be asked here."""
    if model.effective_task == "tensors":
        return tensor_inputs.signature(model)
    if not of_texts(model):
        return Signature({}, {})
    output = Spec(_OUTPUT, BYTES, (-1,))
    if model.effective_task == "embedding":
        output = Spec(_EMBEDDING, "FP32", (-1, -1))
    texts = {TEXT: Spec(TEXT, BYTES, (-1,))}
    return Signature(texts, {output.name: output}, model.limits.max_batch)


def asked(model: Model) -> Signature:
    """The same, for who sends it tensors. Raises Malformed where it takes none."""
    found = signature(model)
    if not found.inputs:
        raise Malformed(f"{model.key} ({model.effective_task}) takes no tensors; use POST /infer")
    return found


def texts(tensor: Tensor) -> list[str]:
    """Raises Malformed where one is none."""
    try:
        return [text.decode() for text in tensor.array().tolist()]
    except UnicodeDecodeError as error:
        raise Malformed(f"{TEXT}: each element must be UTF-8: {error}") from None


def together(model: Model, outputs: Sequence[Any]) -> dict[str, Tensor]:
    """The answers of all texts as one tensor: vectors; or bytes, of a text as it is, of anything
    else as JSON."""
    if model.effective_task == "embedding":
        return {_EMBEDDING: Tensor.from_array("FP32", np.array(outputs, DTYPES["FP32"]))}
    said = [out.encode() if isinstance(out, str) else orjson.dumps(out) for out in outputs]
    array = np.empty(len(said), object)
    array[:] = said
    return {_OUTPUT: Tensor.from_array(BYTES, array)}


def described(model: Model, versions: Sequence[Model]) -> dict[str, Any]:
    """The protocol's metadata of a model. versions: all of it, the one declared last first."""
    found = signature(model)
    return {
        "name": model.name,
        "versions": [other.version for other in reversed(versions)],
        "platform": f"millrace_{model.engine}",
        "inputs": [_described(spec) for spec in found.inputs.values()],
        "outputs": [_described(spec) for spec in found.outputs.values()],
    }


def _described(spec: Spec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def configured(model: Model) -> dict[str, Any]:
    """The same in the words of Triton's model configuration, which counts rows apart."""
    found = signature(model)
    return {
        "name": model.name,
        "platform": "",
        "backend": f"millrace_{model.engine}",
        "max_batch_size": found.most_rows,
        "input": [_configured(spec) for spec in found.inputs.values()],
        "output": [_configured(spec) for spec in found.outputs.values()],
        "dynamic_batching": {},
    }


def _configured(spec: Spec) -> dict[str, Any]:
    datatype = "STRING" if spec.datatype == BYTES else spec.datatype
    return {"name": spec.name, "data_type": f"TYPE_{datatype}", "dims": list(spec.shape[1:])}
