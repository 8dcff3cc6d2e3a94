"""Degraded service that a model's entry allows before a call is rejected.

degrade = { shed = true, truncate = 64, fallback = "minilm@1" }
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field, SkipValidation

from jobs.models.tables import Flag


@dataclass(frozen=True, slots=True)
class Degrade:
    """Measures that may be taken with a call under load."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    shed: Flag = False  #: rejects calls of lower classes earlier
    #: tokens that a text is cut to; 0: it isn't cut; checked as the engine's parameter
    truncate: Annotated[int, SkipValidation] = 0
    #: version (name@version) that answers in place of this one; "": none
    fallback: Annotated[str, Field(description="a string, name@version")] = ""
