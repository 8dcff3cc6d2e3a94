"""Cells (whole platforms) and the tenants that each of them serves, declared in a TOML file."""

import tomllib
from collections import Counter
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ValidationError

from jobs.api_keys import TENANT
from jobs.problems import described
from jobs.settings import SettingsError

_Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")]
_Tenant = Annotated[str, Field(pattern=TENANT)]
_Hint = Annotated[str, Field(pattern=r"^mk_[A-Za-z0-9_-]{5}$")]


class Placement(BaseModel, frozen=True, extra="forbid"):
    """Cell of a tenant."""

    cell: _Name
    before: _Name | None = None  #: cell that is asked for jobs and files unknown in `cell`
    paused: bool = False  #: True: new jobs, calls and verbs get 503 for as long as a move takes
    keys: tuple[_Hint, ...] = ()  #: first characters of its keys, as `millrace keys list` shows


class Cells(BaseModel, frozen=True, extra="forbid"):
    """Cells by name, and the tenants that aren't in the default one."""

    default: _Name
    cells: dict[_Name, str] = Field(min_length=1)  #: http://host:port of each cell's api
    tenants: dict[_Tenant, Placement] = {}

    @classmethod
    def load(cls, path: Path) -> "Cells":
        """Reads a file. Raises SettingsError with every problem, and OSError."""
        try:
            found = cls(**tomllib.loads(path.read_text()))
        except tomllib.TOMLDecodeError as error:
            raise SettingsError([f"{path} is not valid TOML: {error}"]) from error
        except ValidationError as error:
            raise SettingsError([f"{path}: {each}" for each in described(error, cls)]) from error
        if problems := found.problems():
            raise SettingsError([f"{path}: {each}" for each in problems])
        return found

    def problems(self) -> list[str]:
        """Returns what is contradictory."""
        named = [self.default]
        for placed in self.tenants.values():
            named += [placed.cell, *([placed.before] if placed.before else [])]
        unknown = sorted(set(named) - self.cells.keys())
        problems = [f"no cell is called {name}" for name in unknown]
        problems += [
            f"cells.{name} must be http://host:port, not {url}"
            for name, url in self.cells.items()
            if not _is_address(url)
        ]
        # nginx compares the keys of its maps without regard to case.
        tenants = Counter(tenant.lower() for tenant in self.tenants)
        hints = Counter(hint.lower() for each in self.tenants.values() for hint in each.keys)
        problems += [f"{one} is there twice, but for case" for one in _repeated(tenants + hints)]
        return problems


def _is_address(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and bool(parts.hostname) and parts.path in ("", "/")


def _repeated(counts: "Counter[str]") -> list[str]:
    return [one for one, count in counts.items() if count > 1]
