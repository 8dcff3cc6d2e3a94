"""Dialects: the formats of items and results, native or of another API.

All jobs have the same rows, verbs and results. A job's dialect reads the lines of its input and
writes the lines of its results.
"""

from jobs.dialects.protocol import Dialect


def dialect(name: str) -> Dialect:
    """Returns the dialect that a job's row names."""
    from jobs.dialects.anthropic import Anthropic
    from jobs.dialects.native import Native
    from jobs.dialects.openai import OpenAI

    dialects: dict[str, type[Dialect]] = {
        "anthropic": Anthropic,
        "anthropic_part": Anthropic,
        "native": Native,
        "openai": OpenAI,
    }
    return dialects[name]()
