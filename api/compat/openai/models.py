"""Models as OpenAI's clients know them."""

from typing import Any

from jobs.models.model import Model


def model_object(name: str, model: Model) -> dict[str, Any]:
    """Returns the object of a model, by its name or as `name@version`."""
    shown = {"id": name, "object": "model", "created": model.created, "owned_by": "millrace"}
    return shown | {"max_model_len": model.context_tokens} if model.context_tokens else shown
