"""Labels whose values clients choose: so many get a series of their own, the rest share one."""

OTHER = "other"


class Bounded:
    """The first `most` names are kept as they are; every later one is OTHER."""

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
