"""Limit on label values that clients choose: the first ones get a series, the rest share one."""

OTHER = "other"


class LabelLimit:
    """Keeps the first `most` values and replaces every later one by OTHER."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(name)
        return name
