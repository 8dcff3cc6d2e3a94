"""Whose words a job's items and results are in: ours, or those of another API.

A job is one thing whichever door it came by: the same rows, verbs and results. Its dialect reads
the lines that it is made of, and words the lines of what came out.
"""

from jobs.dialects.protocol import Dialect


def dialect(name: str) -> Dialect:
    """By what stands on a job's row."""
    from jobs.dialects.anthropic import Anthropic
    from jobs.dialects.native import Native
    from jobs.dialects.openai import OpenAI

    dialects: dict[str, type[Dialect]] = {
        "anthropic": Anthropic,
        "native": Native,
        "openai": OpenAI,
    }
    return dialects[name]()
