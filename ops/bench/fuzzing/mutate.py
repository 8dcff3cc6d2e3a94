"""Mutations of a corpus: bytes that are flipped, cut and spliced, and JSON with other values."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

_ODD_BYTES = [
    b"\x00", b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\\ud800", b"\\u0000",
    b'"', b"\\", b"\n", b"\r", b"{", b"[", b"]", b"}", b",", b":", b"1e400", b"NaN", b"-0",
    b"9" * 400, b"[" * 300, b'{"a":' * 300, b"@", b"%", b"%00", b"#", b"/", b"\xef\xbb\xbf",
]  # fmt: skip
_ODD_VALUES: list[Any] = [
    None, True, False, 0, -1, 2**31, 2**63, 2**64, -(2**70), 1.5, 1e308, 3.0, float("nan"),
    float("inf"), "", "\0", "\ud800", "\u202e", "a" * 600, "a" * 70_000, [], {}, [[]], {"": ""},
    {"\ud800": "\0"}, ["minilm"], "minilm@", "echo@1", "\x7f", "😀" * 100, [None] * 50,
]  # fmt: skip
_DEPTHS = (10, 199, 201, 253, 255, 1023, 1025, 5000)


def mutated(random: Random, corpus: Sequence[bytes]) -> bytes:
    """Mutates an input: half of the time a value of its JSON, then its bytes."""
    raw = random.choice(corpus)
    if random.random() < 0.5:
        raw = _with_other_values(random, raw)
    for _ in range(random.choice((0, 0, 1, 1, 2, 5))):
        raw = _with_other_bytes(random, raw, corpus)
    return raw


def _with_other_bytes(random: Random, raw: bytes, corpus: Sequence[bytes]) -> bytes:
    """Flips a bit, cuts, doubles, splices with another input, or inserts odd bytes."""
    a, b = sorted((random.randint(0, len(raw)), random.randint(0, len(raw))))
    match random.choice(("flip", "cut", "double", "splice", "insert", "insert")):
        case "flip":
            flipped = bytes([raw[a] ^ (1 << random.randrange(8))]) if a < len(raw) else b"\x80"
            return raw[:a] + flipped + raw[a + 1 :]
        case "cut":
            return raw[:a] + raw[b:]
        case "double":
            return raw[:b] + raw[a : min(b, a + 2000)] + raw[b:]
        case "splice":
            other = random.choice(corpus)
            return raw[:a] + other[random.randint(0, len(other)) :]
    return raw[:a] + random.choice(_ODD_BYTES) + raw[a:]


def _with_other_values(random: Random, raw: bytes) -> bytes:
    """Replaces a value in each line of JSON."""
    try:
        values = [json.loads(line) for line in raw.splitlines()]
    except ValueError:
        return raw
    return b"\n".join(json.dumps(_replaced(random, value)).encode() for value in values)


def _replaced(random: Random, value: Any) -> Any:
    if isinstance(value, dict) and value and random.random() < 0.8:
        key = random.choice(list(value))
        if random.random() < 0.15:
            return {**value, random.choice(["", "\0", "x", "items", "\ud800", key * 2]): 1}
        return {**value, key: _replaced(random, value[key])}
    if isinstance(value, list) and value and random.random() < 0.8:
        at = random.randrange(len(value))
        return [*value[:at], _replaced(random, value[at]), *value[at + 1 :]]
    if random.random() < 0.02:
        return _nested(random, random.choice(_DEPTHS[:5]))
    return random.choice(_ODD_VALUES)


def _nested(random: Random, depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if random.random() < 0.5 else {"a": value}
    return value


def deep(random: Random) -> bytes:
    """JSON text that is nested too deep."""
    depth, opened = random.choice(_DEPTHS), random.choice([(b"[", b"]"), (b'{"a":', b"}")])
    inner = opened[0] * depth + b"1" + opened[1] * depth * random.randint(0, 1)
    return random.choice([b"%b", b'{"model":"echo","input":%b}', b'{"model":"echo","items":[%b]}',
                          b'{"model":"echo","items":["a"],"params":%b}',
                          b'{"model":"echo","items":["a"],"metadata":%b}']) % inner  # fmt: skip
