"""What travels: requests and answers of `infer`, in JSON or with binary tensors behind it.

With the header Inference-Header-Content-Length the JSON object has that many bytes, and the bytes
of each tensor that says `binary_data_size` follow it, in order. Free of FastAPI.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import orjson

from jobs.errors import Malformed
from jobs.intake import validation
from jobs.models.inputs.signature import Signature
from jobs.models.inputs.tensors import BYTES, Tensor, TensorError, shape_of
from jobs.states import JobClass

HEADER = "inference-header-content-length"
MAX_TIMEOUT_MS = 600_000
TIMEOUT_MS = 10_000
"""Of a request that says nothing, as of POST /infer."""
_SHORT = 65_536  # bytes
_NOT_SERVED = {
    "shared_memory_region": "shared memory is not served here; send the tensor's data",
    "sequence_id": "sequences are not served here: each request stands alone",
    "classification": "the classification extension is not served here; take the scores",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """One output of the answer."""

    name: str
    binary: bool


@dataclass(frozen=True, slots=True)
class Inference:
    """A request, read and checked against its model's signature. id: the client's own, or ""."""

    id: str
    inputs: Mapping[str, Tensor]
    outputs: Sequence[Wanted]
    rows: int
    timeout_ms: int
    job_class: JobClass


def header_length(value: str | None, body: bytes) -> int:
    """Bytes of the JSON object. Raises Malformed."""
    if value is None:
        return len(body)
    if not (value.isascii() and value.isdecimal() and len(value) < 20):
        raise Malformed(f"Inference-Header-Content-Length must be a number of bytes, not {value!r}")
    if int(value) > len(body):
        raise Malformed(
            f"Inference-Header-Content-Length is {value}, and the body has {len(body)} bytes"
        )
    return int(value)


def takes_long(body: bytes, head: int, takes: Signature) -> bool:
    """Whether to read it, one number or text after the other, would keep others waiting."""
    texts = any(spec.datatype == BYTES for spec in takes.inputs.values())
    return (len(body) if texts else head) > _SHORT


def read(body: bytes, head: int, takes: Signature) -> Inference:
    """A body whose first `head` bytes are JSON. Raises Malformed with what is wrong, and where."""
    said = validation.parse_json(memoryview(body)[:head])
    try:
        return _read(said, memoryview(body)[head:], takes)
    except TensorError as wrong:
        raise Malformed(str(wrong)) from None


def _read(said: Any, binary: memoryview, takes: Signature) -> Inference:
    if not isinstance(said, dict):
        raise TensorError("the request must be a JSON object with inputs")
    parameters = _parameters(said, "the request")
    inputs = _inputs(_objects(said, "inputs"), binary, takes)
    rows = takes.complete({name: tensor.shape for name, tensor in inputs.items()})
    return Inference(
        _id(said), inputs, _outputs(said, parameters, takes), rows,
        _timeout_ms(parameters), _class(parameters),
    )  # fmt: skip


def _given(of: Mapping[str, Any], key: str, default: Any) -> Any:
    """Some clients write null for what they leave out."""
    value = of.get(key)
    return default if value is None else value


def _id(said: Mapping[str, Any]) -> str:
    """Which comes back in the answer."""
    id = _given(said, "id", "")
    if not isinstance(id, str):
        raise TensorError("id must be a string")
    try:
        id.encode()
    except UnicodeEncodeError:
        raise TensorError("id holds a lone surrogate, which is no text") from None
    return id


def _objects(said: Mapping[str, Any], key: str) -> list[Any]:
    found = said.get(key)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise TensorError(f"{key} must be a list of objects")
    return found


def _parameters(of: Mapping[str, Any], whose: str) -> Mapping[str, Any]:
    found = _given(of, "parameters", {})
    if not isinstance(found, dict):
        raise TensorError(f"parameters of {whose} must be an object")
    for name, message in _NOT_SERVED.items():
        if name in found:
            raise TensorError(message)
    return found


def _inputs(
    entries: Sequence[Mapping[str, Any]], binary: memoryview, takes: Signature
) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    place = 0
    for entry in entries:
        spec = takes.input(entry.get("name"))
        if spec.name in found:
            raise TensorError(f"{spec.name}: sent twice")
        try:
            size = _parameters(entry, "an input").get("binary_data_size")
            shape = shape_of(entry.get("shape"))
            spec.check(entry.get("datatype"), shape)
            if size is None:
                found[spec.name] = Tensor.from_data(spec.datatype, shape, entry.get("data"))
                continue
            if type(size) is not int or size < 0 or "data" in entry:
                raise TensorError(
                    "binary_data_size must be a number of bytes, without data beside it"
                )
            if size > len(binary) - place:
                raise TensorError(
                    f"binary_data_size is {size}; {len(binary) - place} bytes are left"
                )
            raw = bytes(binary[place : place + size])
            found[spec.name] = Tensor.from_bytes(spec.datatype, shape, raw)
            place += size
        except TensorError as wrong:
            raise TensorError(f"{spec.name}: {wrong}") from None
    if place < len(binary):
        raise TensorError(f"{len(binary) - place} bytes of binary data belong to no input")
    return found


def _outputs(
    said: Mapping[str, Any], parameters: Mapping[str, Any], takes: Signature
) -> list[Wanted]:
    usual = _true(parameters.get("binary_data_output", False), "binary_data_output")
    entries = [] if said.get("outputs") is None else _objects(said, "outputs")
    if not entries:
        return [Wanted(name, usual) for name in takes.outputs]
    found = []
    for entry in entries:
        spec = takes.output(entry.get("name"))
        binary = _parameters(entry, "an output").get("binary_data", usual)
        found.append(Wanted(spec.name, _true(binary, "binary_data")))
    if len({want.name for want in found}) < len(found):
        raise TensorError("outputs: the same one is asked for twice")
    return found


def _true(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise TensorError(f"{name} must be true or false")
    return value


def _timeout_ms(parameters: Mapping[str, Any]) -> int:
    """From microseconds; 0 is the usual."""
    given = _whole(parameters, "timeout")
    timeout_ms = ceil(given / 1000) if given else TIMEOUT_MS
    if timeout_ms > MAX_TIMEOUT_MS:
        raise TensorError(
            f"timeout must be {MAX_TIMEOUT_MS * 1000:,} microseconds at most, not {given}"
        )
    return timeout_ms


def _class(parameters: Mapping[str, Any]) -> JobClass:
    """The lower the number the higher the priority; 0 is the usual."""
    priority = _whole(parameters, "priority")
    return "interactive" if priority <= 1 else "standard" if priority == 2 else "bulk"


def _whole(parameters: Mapping[str, Any], name: str) -> int:
    value = parameters.get(name, 0)
    if type(value) is not int or value < 0:
        raise TensorError(f"{name} must be a whole number, 0 or more")
    return value


def write(
    about: Mapping[str, Any], outputs: Mapping[str, Tensor], wanted: Sequence[Wanted]
) -> tuple[bytes, int | None]:
    """The body of an answer, and the bytes of its JSON object where more follows. about: what it
    says beside its outputs. Raises Malformed where JSON can't hold one."""
    described, behind = [], []
    for want in wanted:
        tensor = outputs[want.name]
        entry: dict[str, Any] = {"name": want.name, "datatype": tensor.datatype}
        entry["shape"] = tensor.shape
        if want.binary:
            behind.append(tensor.raw)
            entry["parameters"] = {"binary_data_size": len(tensor.raw)}
        else:
            entry["data"] = _data(want.name, tensor)
        described.append(entry)
    head = orjson.dumps({**about, "outputs": described}, option=orjson.OPT_SERIALIZE_NUMPY)
    if not any(want.binary for want in wanted):
        return head, None
    return b"".join((head, *behind)), len(head)


def _data(name: str, tensor: Tensor) -> Any:
    try:
        return tensor.data()
    except TensorError as wrong:
        raise Malformed(f"{name}: {wrong}") from None
