"""Requests and answers as bytes, without a connection: lines, blocks, server-sent events."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

_BLOCK_BYTES = 1 << 16  # of lines that are one chunk on the wire


@dataclass(frozen=True, slots=True)
class Request:
    """Request to the api."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)  #: query; None: left out
    json: Any = None  #: body
    lines: Iterable[bytes] | None = None  #: body as NDJSON; read again for each try
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True  #: False: it must not run twice

    @property
    def query(self) -> dict[str, Any]:
        """Query parameters as they are sent: texts and numbers unchanged, a list as several of its
        name, all else as JSON."""
        return {
            name: value if isinstance(value, str | int | float | list) else json.dumps(value)
            for name, value in self.params.items()
        }


def without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves out the fields that are None."""
    return {name: value for name, value in fields.items() if value is not None}


def found_by(name: str | None, labels: Mapping[str, str] | None) -> dict[str, Any]:
    """Fields of a job that it is found by."""
    return without_none({"name": name, "labels": labels and dict(labels)})


def idempotency(key: str | None) -> dict[str, str]:
    """Header of a request that creates something: under this key, or a new one."""
    return {"Idempotency-Key": f'"{key or uuid4()}"'}


def blocks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Joins lines to larger pieces: each is a chunk on the wire."""
    block: list[bytes] = []
    size = 0
    for line in lines:
        block.append(line)
        size += len(line)
        if size >= _BLOCK_BYTES:
            yield b"".join(block)
            block, size = [], 0
    if block:
        yield b"".join(block)


class Lines:
    """Splitter of a body at newlines alone: JSON texts may hold other line ends of Unicode."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # pieces of a line, joined once it ends

    def feed(self, chunk: bytes) -> list[bytes]:
        """Returns the lines that this chunk ends."""
        *whole, rest = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join([*self._rest, whole[0]])
            self._rest.clear()
        self._rest.append(rest)
        return whole

    def end(self) -> list[bytes]:
        """Returns the last line, where the body doesn't end with a newline."""
        return list(filter(None, [b"".join(self._rest)]))


class Events:
    """Parser of server-sent events, without their comments."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def feed(self, line: str) -> tuple[str, str] | None:
        """Returns id and data of the event that this line ends."""
        name, _, value = line.partition(": ")
        if line and name:
            self._fields[name] = value
        elif "data" in self._fields:
            event = self._fields.get("id", ""), self._fields["data"]
            self._fields = {}
            return event
        return None
