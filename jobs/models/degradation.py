"""What a model's entry allows to be done with a call before it is refused.

degrade = { shed = true, truncate = 64, fallback = "minilm@1" }
"""

from dataclasses import dataclass, fields
from typing import Any

from jobs.models.engines.engine_spec import EngineSpec


@dataclass(frozen=True, slots=True)
class Degrade:
    """shed: calls of lower classes are refused earlier; truncate: a text is cut to so many tokens
    (0: it isn't); fallback: the version, as name@version, that answers in place of this one."""

    shed: bool = False
    truncate: int = 0
    fallback: str = ""


def read(entry: Any, kind: EngineSpec | None, where: str, problems: list[str]) -> Degrade:
    """The table of one model; what is wrong with it is added to the problems. kind: of its
    engine, where that is known."""
    if not isinstance(entry, dict):
        problems.append(f"{where}: degrade must be a table")
        return Degrade()
    before = len(problems)
    known = [f.name for f in fields(Degrade)]
    problems += [
        f"{where}: unknown key {key!r} in degrade; there are: {', '.join(known)}"
        for key in entry
        if key not in known
    ]
    if not isinstance(entry.get("shed", False), bool):
        problems.append(f"{where}: degrade.shed must be true or false")
    if not isinstance(entry.get("fallback", ""), str):
        problems.append(f"{where}: degrade.fallback must be a string, name@version")
    if "truncate" in entry and kind is not None:
        _read_truncate(entry["truncate"], kind, where, problems)
    return Degrade() if len(problems) > before else Degrade(**entry)


def _read_truncate(value: Any, kind: EngineSpec, where: str, problems: list[str]) -> None:
    param = kind.params.get("truncate")
    if param is None:
        problems.append(f"{where}: degrade.truncate: this engine takes no parameter 'truncate'")
    elif not param.takes(value):
        problems.append(f"{where}: degrade.truncate must be {param.wanted}")
