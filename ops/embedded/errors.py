class EmbeddedError(Exception):
    """An embedded server can't run. The message says what, where, and how to mend it."""


class HomeInUse(EmbeddedError):
    """Another process runs the servers of this home."""
