"""Wire format of `infer`: requests and responses in JSON, optionally followed by binary tensors.

With the header Inference-Header-Content-Length the JSON object has that many bytes, and the bytes
of each tensor with `binary_data_size` follow it in order. Free of FastAPI.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import orjson

from jobs.errors import Malformed
from jobs.intake import validation
from jobs.models.inputs.signature import Signature
from jobs.models.inputs.tensors import Tensor, TensorError, shape_of
from jobs.states import JobClass

HEADER = "inference-header-content-length"
MAX_TIMEOUT_MS = 600_000
TIMEOUT_MS = 10_000  #: Default timeout, as of POST /infer.
_NOT_SERVED = {
    "shared_memory_region": "shared memory is not served here; send the tensor's data",
    "sequence_id": "sequences are not served here: each request stands alone",
    "classification": "the classification extension is not served here; take the scores",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Requested output."""

    name: str
    binary: bool


@dataclass(frozen=True, slots=True)
class Inference:
    """Parsed request, checked against its model's signature."""

    id: str  #: the client's own, or ""
    inputs: Mapping[str, Tensor]
    outputs: Sequence[Wanted]
    rows: int
    timeout_ms: int
    job_class: JobClass


def header_length(value: str | None, body: bytes) -> int:
    """Returns the bytes of the JSON object. Raises Malformed."""
    if value is None:
        return len(body)
    if not (value.isascii() and value.isdecimal() and len(value) < 20):
        raise Malformed(f"Inference-Header-Content-Length must be a number of bytes, not {value!r}")
    if int(value) > len(body):
        raise Malformed(
            f"Inference-Header-Content-Length is {value}, and the body has {len(body)} bytes"
        )
    return int(value)


def read(body: bytes, head: int, signature: Signature) -> Inference:
    """Parses a body whose first `head` bytes are JSON. Raises Malformed."""
    request = validation.parse_json(memoryview(body)[:head])
    try:
        return _read(request, memoryview(body)[head:], signature)
    except TensorError as error:
        raise Malformed(str(error)) from None


def _read(request: Any, binary: memoryview, signature: Signature) -> Inference:
    if not isinstance(request, dict):
        raise TensorError("the request must be a JSON object with inputs")
    parameters = _parameters(request, "the request")
    inputs = _inputs(_objects(request, "inputs"), binary, signature)
    rows = signature.complete({name: tensor.shape for name, tensor in inputs.items()})
    return Inference(
        _id(request), inputs, _outputs(request, parameters, signature), rows,
        _timeout_ms(parameters), _class(parameters),
    )  # fmt: skip


def _value_of(source: Mapping[str, Any], key: str, default: Any) -> Any:
    """Returns a value or the default; some clients send null for what they leave out."""
    value = source.get(key)
    return default if value is None else value


def _id(request: Mapping[str, Any]) -> str:
    """Returns the id, which the response repeats."""
    id = _value_of(request, "id", "")
    if not isinstance(id, str):
        raise TensorError("id must be a string")
    try:
        id.encode()
    except UnicodeEncodeError:
        raise TensorError("id holds a lone surrogate, which is no text") from None
    return id


def _objects(request: Mapping[str, Any], key: str) -> list[Any]:
    entries = request.get(key)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise TensorError(f"{key} must be a list of objects")
    return entries


def _parameters(source: Mapping[str, Any], owner: str) -> Mapping[str, Any]:
    parameters = _value_of(source, "parameters", {})
    if not isinstance(parameters, dict):
        raise TensorError(f"parameters of {owner} must be an object")
    for name, message in _NOT_SERVED.items():
        if name in parameters:
            raise TensorError(message)
    return parameters


def _inputs(
    entries: Sequence[Mapping[str, Any]], binary: memoryview, signature: Signature
) -> dict[str, Tensor]:
    inputs: dict[str, Tensor] = {}
    offset = 0
    for entry in entries:
        spec = signature.input(entry.get("name"))
        if spec.name in inputs:
            raise TensorError(f"{spec.name}: sent twice")
        try:
            size = _parameters(entry, "an input").get("binary_data_size")
            shape = shape_of(entry.get("shape"))
            spec.check(entry.get("datatype"), shape)
            if size is None:
                inputs[spec.name] = Tensor.from_data(spec.datatype, shape, entry.get("data"))
                continue
            if type(size) is not int or size < 0 or "data" in entry:
                raise TensorError(
                    "binary_data_size must be a number of bytes, without data beside it"
                )
            if size > len(binary) - offset:
                raise TensorError(
                    f"binary_data_size is {size}; {len(binary) - offset} bytes are left"
                )
            raw = bytes(binary[offset : offset + size])
            inputs[spec.name] = Tensor.from_bytes(spec.datatype, shape, raw)
            offset += size
        except TensorError as error:
            raise TensorError(f"{spec.name}: {error}") from None
    if offset < len(binary):
        raise TensorError(f"{len(binary) - offset} bytes of binary data belong to no input")
    return inputs


def _outputs(
    request: Mapping[str, Any], parameters: Mapping[str, Any], signature: Signature
) -> list[Wanted]:
    default_binary = _boolean(parameters.get("binary_data_output", False), "binary_data_output")
    entries = [] if request.get("outputs") is None else _objects(request, "outputs")
    if not entries:
        return [Wanted(name, default_binary) for name in signature.outputs]
    wanted = []
    for entry in entries:
        spec = signature.output(entry.get("name"))
        binary = _parameters(entry, "an output").get("binary_data", default_binary)
        wanted.append(Wanted(spec.name, _boolean(binary, "binary_data")))
    if len({output.name for output in wanted}) < len(wanted):
        raise TensorError("outputs: one is requested twice")
    return wanted


def _boolean(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise TensorError(f"{name} must be true or false")
    return value


def _timeout_ms(parameters: Mapping[str, Any]) -> int:
    """Converts from microseconds; 0 is the default."""
    given = _whole(parameters, "timeout")
    timeout_ms = ceil(given / 1000) if given else TIMEOUT_MS
    if timeout_ms > MAX_TIMEOUT_MS:
        raise TensorError(
            f"timeout must be {MAX_TIMEOUT_MS * 1000:,} microseconds at most, not {given}"
        )
    return timeout_ms


def _class(parameters: Mapping[str, Any]) -> JobClass:
    """Maps a priority to a class: a lower number is more urgent, 0 is the default."""
    priority = _whole(parameters, "priority")
    return "interactive" if priority <= 1 else "standard" if priority == 2 else "bulk"


def _whole(parameters: Mapping[str, Any], name: str) -> int:
    value = parameters.get(name, 0)
    if type(value) is not int or value < 0:
        raise TensorError(f"{name} must be a whole number, 0 or more")
    return value


def write(
    envelope: Mapping[str, Any], outputs: Mapping[str, Tensor], wanted: Sequence[Wanted]
) -> tuple[bytes, int | None]:
    """Returns the body of a response, and the length of its JSON where binary data follows.

    `envelope` holds its other fields. Raises Malformed where JSON can't represent an output.
    """
    described, binary = [], []
    for output in wanted:
        tensor = outputs[output.name]
        entry: dict[str, Any] = {"name": output.name, "datatype": tensor.datatype}
        entry["shape"] = tensor.shape
        if output.binary:
            binary.append(tensor.raw)
            entry["parameters"] = {"binary_data_size": len(tensor.raw)}
        else:
            entry["data"] = _data(output.name, tensor)
        described.append(entry)
    head = orjson.dumps({**envelope, "outputs": described}, option=orjson.OPT_SERIALIZE_NUMPY)
    if not any(output.binary for output in wanted):
        return head, None
    return b"".join((head, *binary)), len(head)


def _data(name: str, tensor: Tensor) -> Any:
    try:
        return tensor.data()
    except TensorError as error:
        raise Malformed(f"{name}: {error}") from None
