"""Errors of the embedded servers."""


class EmbeddedError(Exception):
    """Reports that an embedded server can't run. The message says how to fix it."""


class HomeInUse(EmbeddedError):
    """Reports that another process runs the servers of this home."""
