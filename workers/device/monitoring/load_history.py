"""Loads of earlier incarnations of a worker, as its supervisor tells the next one."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import orjson


@dataclass(frozen=True, slots=True)
class LoadHistory:
    """Models, by name@version, that are loaded last, not at all or first."""

    late: tuple[str, ...] = ()  #: loaded after all others
    left_out: Mapping[str, str] = field(default_factory=dict)  #: not loaded; the reason of each
    held: tuple[str, ...] = ()  #: in memory when an operator drained the worker: loaded first

    def pack(self, most_bytes: int) -> bytes:
        """Returns it as JSON, without the last models where that would be longer."""
        packed = orjson.dumps(asdict(self))
        if len(packed) <= most_bytes:
            return packed
        fewer = dict(list(self.left_out.items())[: len(self.left_out) // 2])
        return LoadHistory((), fewer).pack(most_bytes) if fewer != self.left_out else b""

    @classmethod
    def unpack(cls, packed: bytes) -> "LoadHistory":
        """Reads what `pack` returned; empty bytes: there is none."""
        found = orjson.loads(packed) if packed else {}
        late, held = tuple(found.get("late", ())), tuple(found.get("held", ()))
        return cls(late, found.get("left_out", {}), held)
