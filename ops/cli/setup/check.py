"""Outcome of one check of a machine."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """Finding of `millrace doctor`."""

    name: str
    state: State  #: problem: the platform doesn't run, or not for long
    words: str
    mend: str = ""  #: what to do; "": nothing

    @property
    def line(self) -> str:
        """Line for people."""
        mend = f"\n{'':22}-> {self.mend}" if self.mend else ""
        return f"{self.state:8} {self.name:12} {self.words}{mend}"
