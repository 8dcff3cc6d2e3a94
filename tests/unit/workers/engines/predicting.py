"""A module to serve with the `python` engine."""


def predict(batch: list[str]) -> list[str]:
    return [text.upper() for text in batch]
