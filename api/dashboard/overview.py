"""The first page: what runs, what is stuck, and why."""

from fastapi import Request, Response

from api.context import Shared
from api.dashboard import frame, routes
from api.dashboard.viewers import Viewing

router = routes.router()


@router.get("")
def overview(request: Request, shared: Shared, viewer: Viewing) -> Response:
    return frame.page(request, "overview.html", viewer=viewer)
