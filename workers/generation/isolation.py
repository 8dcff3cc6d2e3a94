"""Sequences that may kill their generator: each runs alone until it has a token.

A death makes all that ran suspect, and a token clears the sequence that it is of. One of which the
generator dies again while nothing else is in it is the reason. A process that was killed from
outside (an operator, a machine short of memory) says hardly anything about its sequences.
"""

from collections.abc import Collection
from typing import TypeAlias

from workers.engines.generator import GeneratorDied
from workers.generation.requests import Sequenced

_Sequences: TypeAlias = tuple[Sequenced, ...]
_DEATH, _KILL = 8, 1  # suspicion that a death adds, and one from outside
SUSPECT = 2 * _DEATH
"""Suspicion from which on a sequence runs alone."""


class Isolation:
    """Sequences that run, but aren't in the generator: they come before its next step, or wait
    while one of all that run is tried alone. resumes: sequences in it can leave for that."""

    def __init__(self, *, resumes: bool) -> None:
        self._resumes = resumes
        self._outside: dict[Sequenced, None] = {}

    def put(self, sequence: Sequenced) -> None:
        """Adds a sequence that is to come."""
        self._outside[sequence] = None

    def leave(self, sequence: Sequenced) -> None:
        """Forgets a sequence, wherever it is."""
        self._outside.pop(sequence, None)

    def changes(self, inside: Collection[Sequenced]) -> tuple[_Sequences, _Sequences]:
        """Returns the sequences that leave the generator, to come later, and those that come."""
        if not self._outside:
            return (), ()
        everyone = (*inside, *self._outside)
        suspect = next((one for one in everyone if one.suspicion >= SUSPECT), None)
        if suspect is None:
            coming, self._outside = tuple(self._outside), {}
            return (), coming
        leaving = tuple(one for one in inside if one is not suspect)
        if leaving and not self._resumes:
            return (), ()  # they end first
        self._outside.update(dict.fromkeys(leaving))
        if suspect not in self._outside:
            return leaving, ()
        del self._outside[suspect]
        return leaving, (suspect,)


def accuse(death: GeneratorDied, inside: Collection[Sequenced]) -> Sequenced | None:
    """Makes the sequences that a generator had suspect; returns the one that is the reason of its
    death, if that is known."""
    for one in inside:
        one.suspicion += _KILL if death.outside else _DEATH
    return next((one for one in inside if len(inside) == 1 and one.suspicion > SUSPECT), None)
