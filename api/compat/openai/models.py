"""OpenAI's list of models."""

from typing import Any

from fastapi import APIRouter, Response

from api.compat.openai.schemas import ERRORS, OpenAIModel, OpenAIModelList
from api.context import ContextDep
from api.dependencies import Reader
from api.http.responses import json_response

router = APIRouter(tags=["openai"], responses=ERRORS)
PATH = "/v1/models"


@router.get(PATH, response_model=OpenAIModelList)
def list_models(context: ContextDep, caller: Reader) -> Response:
    """Lists every model by its name, which means its newest version, and by each version."""
    names = dict.fromkeys(name for model in context.models for name in (model.name, model.key))
    return json_response({"object": "list", "data": [_model(name) for name in names]})


@router.get(PATH + "/{model:path}", response_model=OpenAIModel)
def get_model(context: ContextDep, caller: Reader, model: str) -> Response:
    """Returns a model, by its name or as `name@version`."""
    context.models.resolve(model)
    return json_response(_model(model))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "millrace"}
