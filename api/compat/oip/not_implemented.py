"""Triton's extensions that are not served: each responds with the reason."""

from fastapi import APIRouter

from api.dependencies import Reader
from jobs.errors import NotFound

router = APIRouter(prefix="/v2", include_in_schema=False)

_UNSERVED = {
    "shared memory is not served here; send tensors in the body": (
        "/systemsharedmemory/{rest:path}",
        "/cudasharedmemory/{rest:path}",
    ),
    "models come and go with the models file, not by requests": (
        "/repository/models/{model}/load",
        "/repository/models/{model}/unload",
    ),
    "statistics are not served here; see GET /usage and GET /models": (
        "/models/stats",
        "/models/{model}/stats",
        "/models/{model}/versions/{version}/stats",
    ),
    "tracing is not served here": ("/trace/setting", "/models/{model}/trace/setting"),
    "log settings are not served here": ("/logging",),
}


def _refuse(why: str, path: str) -> None:
    async def refused(caller: Reader) -> None:
        raise NotFound(why)

    router.add_api_route(path, refused, methods=["GET", "POST"])


for _why, _paths in _UNSERVED.items():
    for _path in _paths:
        _refuse(_why, _path)
