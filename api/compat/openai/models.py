"""Models as OpenAI's clients know them."""

from typing import Any


def model_object(name: str) -> dict[str, Any]:
    """Returns the object of a model, by its name or as `name@version`."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "millrace"}
