"""Models as OpenAI's clients know them."""

from typing import Any

from jobs.models.model import Model


def model_object(name: str, model: Model) -> dict[str, Any]:
    """Returns the object of a model, by its name or as `name@version`."""
    shown = {"id": name, "object": "model", "created": model.created, "owned_by": "millrace"}
    shown["root"] = model.name
    if context := model.context_tokens:
        shown["max_model_len"] = context
    return shown
