"""Open Inference Protocol, version 2, under /v2: health, metadata, inference, for KServe's and
Triton's clients."""

from typing import Any

from fastapi import APIRouter

from api.compat.oip import infer, metadata, not_implemented
from api.compat.oip.schemas import OipError
from api.http import errors
from api.http.bodies import JSON
from jobs.errors import MillraceError

_ERROR: dict[str, Any] = {"model": OipError, "description": "What went wrong"}
_STATUSES = (400, 401, 403, 404, 409, 410, 413, 415, 422, 429, 500, 503, 504)

router = APIRouter(tags=["open inference protocol"], responses=dict.fromkeys(_STATUSES, _ERROR))
for module in (not_implemented, infer, metadata):  # in this order: the first is more special
    router.include_router(module.router)

route_of, answer = infer.route_of, infer.answer


def _worded(error: MillraceError, id: str) -> dict[str, str]:
    return {"error": error.detail}


errors.ERROR_FORMATS["/v2"] = (JSON, _worded)
