"""Open Inference Protocol, version 2, under /v2: health, metadata, inference, for KServe's and
Triton's clients."""

from fastapi import APIRouter

from api.compat.oip import infer, metadata, not_implemented
from api.http import errors
from api.http.bodies import JSON
from jobs.errors import MillraceError

router = APIRouter()
for module in (not_implemented, infer, metadata):  # in this order: the first is more special
    router.routes.extend(module.router.routes)

route_of, answer = infer.route_of, infer.answer


def _worded(error: MillraceError, id: str) -> dict[str, str]:
    return {"error": error.detail}


errors.ERROR_FORMATS["/v2"] = (JSON, _worded)
