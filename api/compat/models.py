"""GET /v1/models, which OpenAI's and Anthropic's clients share: each gets its own format."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from api.compat.anthropic import models as anthropic
from api.compat.anthropic.models import AnthropicModel, AnthropicModelPage
from api.compat.openai import models as openai
from api.compat.openai.schemas import ERRORS, OpenAIModel, OpenAIModelList
from api.context import ContextDep
from api.dependencies import Reader
from api.http.responses import json_response

router = APIRouter(tags=["openai", "anthropic"], responses=ERRORS)
PATH = "/v1/models"
_Cursor = Annotated[str | None, Query(max_length=200, description="of Anthropic's API: a model")]


@router.get(PATH, response_model=OpenAIModelList | AnthropicModelPage)
def list_models(
    request: Request,
    context: ContextDep,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=1000, description="of Anthropic's API")] = 20,
    after_id: _Cursor = None,
    before_id: _Cursor = None,
) -> Response:
    """Lists every model and adapter by its name, which means its newest version, and by each
    version: in pages of Anthropic's format where a header `anthropic-version` or `x-api-key` names
    that API."""
    models = context.models_of(caller.tenant)
    served = models.with_adapters(models)
    names = dict.fromkeys(name for model in served for name in (model.name, model.key))
    named = {name: models.resolve(name, caller.tenant) for name in names}
    if anthropic.is_meant(request):
        page = anthropic.page(named, limit=limit, after=after_id, before=before_id)
        return json_response(page)
    data = [openai.model_object(name, model) for name, model in named.items()]
    return json_response({"object": "list", "data": data})


@router.get(PATH + "/{model:path}", response_model=OpenAIModel | AnthropicModel)
def get_model(request: Request, context: ContextDep, caller: Reader, model: str) -> Response:
    """Returns a model, by its name or as `name@version`."""
    found = context.models_of(caller.tenant).resolve(model, caller.tenant)
    as_object: Any = anthropic if anthropic.is_meant(request) else openai
    return json_response(as_object.model_object(model, found))
