"""Routes that answer with pages.

A page is a sync route on `router()`, so it reads and renders on a thread, that ends with
`frame.page(…)`. Blocks of its template called `live_…` are what it sends again when they change
(`live.py`): the same route is asked, and renders those alone, whatever stands around them. What is
not for everybody says so within the block.
"""

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from api.dashboard.rendering import error_pages, live_updates
from api.dashboard.rendering.layout import PREFIX
from api.dashboard.rendering.live_updates import Handler
from jobs.errors import NotFound


class PageRoute(APIRoute):
    """Goes on live where an EventSource asks; what goes wrong is a page too."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                if live_updates.is_asked_for(request):
                    return await live_updates.stream(request, handle)
                return await handle(request)
            except Exception as error:
                return error_pages.answer(request, error)

        return answer


def router() -> APIRouter:
    return APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)


nowhere = router()


@nowhere.get("/{path:path}")
async def no_page(path: str) -> Response:
    """Whatever else is asked for."""
    raise NotFound("there is no such page")
