"""Tensor signatures of models: declared tensors or, for a model of texts or images, one tensor of
them, each of which is a call of its own."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from jobs.errors import Malformed, UnknownModel
from jobs.models.inputs import tensor_inputs
from jobs.models.inputs.signature import Signature, Spec
from jobs.models.inputs.tensors import BYTES, DTYPES, Tensor
from jobs.models.model import Model
from jobs.models.registry import Registry

_TEXT, _IMAGE = "text", "image"
_OUTPUT, _EMBEDDING = "output", "embedding"
_IMAGE_TASK = "image_classification"
_TEXT_KINDS = frozenset({"any", "text", "embedding", "classification", "tokens", _IMAGE_TASK})


def models_of(models: Registry, name: str, version: str = "") -> list[Model]:
    """Returns the versions that a path names, the one declared last first. Raises UnknownModel."""
    if version and not models.get(f"{name}@{version}"):
        known = ", ".join(model.version for model in models.versions(name))
        raise UnknownModel(f"no version {version!r} of {name!r} is served here; there are: {known}")
    return models.versions(f"{name}@{version}" if version else name)


def takes_texts(model: Model) -> bool:
    """Returns True if the model takes texts, or images as texts, rather than tensors."""
    return model.effective_task in _TEXT_KINDS


@lru_cache(1024)
def signature(model: Model) -> Signature:
    """Returns a model's signature; without inputs where this protocol can't call it."""
    if model.effective_task == "tensors":
        return tensor_inputs.signature(model)
    if not takes_texts(model):
        return Signature({}, {})
    output = Spec(_OUTPUT, BYTES, (-1,))
    if model.effective_task == "embedding":
        output = Spec(_EMBEDDING, "FP32", (-1, -1))
    name = _IMAGE if model.effective_task == _IMAGE_TASK else _TEXT
    inputs = {name: Spec(name, BYTES, (-1,))}
    return Signature(inputs, {output.name: output}, model.limits.most_rows)


def call_signature(model: Model) -> Signature:
    """Returns the signature for a call. Raises Malformed where the model takes no tensors."""
    declared = signature(model)
    if not declared.inputs:
        raise Malformed(f"{model.key} ({model.effective_task}) takes no tensors; use POST /infer")
    return declared


def decoded_texts(inputs: Mapping[str, Tensor]) -> list[str]:
    """Decodes the tensor of texts, or of images: files as they are, or in base64. Raises Malformed
    where a text is not UTF-8."""
    [(name, tensor)] = inputs.items()
    decoded = _image if name == _IMAGE else bytes.decode
    try:
        return [decoded(one) for one in tensor.array().tolist()]
    except UnicodeDecodeError as error:
        raise Malformed(f"{name}: each element must be UTF-8: {error}") from None


def _image(file: bytes) -> str:
    """Returns an image in base64, which is the one form that is ASCII."""
    return file.decode() if file.isascii() else b64encode(file).decode()


def joined_outputs(model: Model, outputs: Sequence[bytes]) -> dict[str, Tensor]:
    """Joins the outputs of all texts, each JSON, to one tensor: vectors; or bytes, of a text as it
    is, of anything else as JSON."""
    import numpy as np  # for this protocol alone

    if model.effective_task == "embedding":
        vectors = np.array([orjson.loads(output) for output in outputs], DTYPES["FP32"])
        return {_EMBEDDING: Tensor.from_array("FP32", vectors)}
    encoded = [orjson.loads(out).encode() if out[:1] == b'"' else out for out in outputs]
    array = np.empty(len(encoded), object)
    array[:] = encoded
    return {_OUTPUT: Tensor.from_array(BYTES, array)}


def metadata_object(model: Model, versions: Sequence[Model]) -> dict[str, Any]:
    """Returns the protocol's metadata of a model. `versions`: all of it, the one declared last
    first."""
    declared = signature(model)
    return {
        "name": model.name,
        "versions": [other.version for other in reversed(versions)],
        "platform": f"millrace_{model.engine}",
        "inputs": [_tensor_metadata(spec) for spec in declared.inputs.values()],
        "outputs": [_tensor_metadata(spec) for spec in declared.outputs.values()],
    }


def _tensor_metadata(spec: Spec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def config_object(model: Model) -> dict[str, Any]:
    """Returns Triton's model configuration, in which shapes exclude rows."""
    declared = signature(model)
    return {
        "name": model.name,
        "platform": "",
        "backend": f"millrace_{model.engine}",
        "max_batch_size": declared.most_rows,
        "input": [_tensor_config(spec) for spec in declared.inputs.values()],
        "output": [_tensor_config(spec) for spec in declared.outputs.values()],
        "dynamic_batching": {},
    }


def _tensor_config(spec: Spec) -> dict[str, Any]:
    datatype = "STRING" if spec.datatype == BYTES else spec.datatype
    return {"name": spec.name, "data_type": f"TYPE_{datatype}", "dims": list(spec.shape[1:])}
