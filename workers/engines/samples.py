"""Functions to serve with the `function` engine, for trials and benchmarks."""

from jobs import clock


def batchstring(inputs: list[str]) -> list[str]:
    """Upper-cases up to 100 strings; takes 100 ms whatever it gets."""
    if not 1 <= len(inputs) <= 100:
        raise ValueError(f"takes 1 to 100 strings, got {len(inputs)}")
    clock.sleep(0.1)
    return [text.upper() for text in inputs]
