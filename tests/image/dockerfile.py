"""A Dockerfile as its steps: those that ours uses, and an error for any other."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_KNOWN = {
    *("FROM", "ARG", "ENV", "RUN", "WORKDIR", "COPY", "USER", "EXPOSE", "LABEL"),
    *("ENTRYPOINT", "CMD"),
}


@dataclass(frozen=True)
class Step:
    """An instruction and what stands behind it, its lines joined."""

    name: str
    rest: str


@dataclass
class State:
    """What instructions so far have set in a stage."""

    environ: dict[str, str]
    arguments: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str]:
        """Those that a RUN sees."""
        return {**self.arguments, **self.environ}

    def apply(self, step: Step, given: Mapping[str, str]) -> None:
        """Takes an instruction that sets something; given: values of --build-arg."""
        match step.name:
            case "ARG":
                name, _, default = step.rest.partition("=")
                self.arguments[name] = given.get(name, expand(default, self.variables))
            case "ENV":
                self.environ |= _pairs(step.rest, self.variables)
            case "LABEL":
                self.labels |= _pairs(step.rest, self.variables)
            case "WORKDIR":
                self.workdir = str(Path(self.workdir) / expand(step.rest, self.variables))
            case "USER":
                self.user = step.rest
            case "ENTRYPOINT":
                self.entrypoint = json.loads(step.rest)
            case "CMD":
                self.command = json.loads(step.rest)


def steps(text: str) -> Iterator[Step]:
    """Yields the instructions. Raises ValueError for one that isn't known here."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        name, _, rest = line.strip().partition(" ")
        if name and name not in _KNOWN:
            raise ValueError(f"the instruction {name} is not known here")
        if name:
            yield Step(name, rest.strip())


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Puts values in place of $NAME and ${NAME}; "" where there is none."""
    return _VARIABLE.sub(lambda found: variables.get(found[1] or found[2], ""), text)


def _pairs(rest: str, variables: Mapping[str, str]) -> dict[str, str]:
    pairs = (word.partition("=") for word in shlex.split(rest))
    return {name: expand(value, variables) for name, _, value in pairs}


def in_context(names: list[str], ignored: str) -> list[str]:
    """Returns the files that a .dockerignore leaves in the context: the last match decides."""
    patterns = [line for line in ignored.splitlines() if line and not line.startswith("#")]
    return [name for name in names if not _is_ignored(name, patterns)]


def _is_ignored(name: str, patterns: list[str]) -> bool:
    path, ignored = Path(name), False
    places = [name, *(str(parent) for parent in path.parents if str(parent) != ".")]
    for pattern in patterns:
        bare = pattern.removeprefix("!")
        tail = bare.removeprefix("**/")
        if any(fnmatch(place, bare) or (tail != bare and fnmatch(Path(place).name, tail))
               for place in places):  # fmt: skip
            ignored = not pattern.startswith("!")
    return ignored
