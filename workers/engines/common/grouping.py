"""Groups of the entries of a launch that one call of a network can take."""

from collections.abc import Hashable, Sequence


def indexes_by(keys: Sequence[Hashable]) -> list[list[int]]:
    """Returns the indexes of equal keys, a list for each key."""
    groups: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    return list(groups.values())
