"""Router of pages.

A page is a sync route on `router()`: it loads data and returns `page.render(…)`, on a thread.
Blocks of its template named `live_…` are sent again when they change (`live_updates`): each is
rendered alone, so it imports its own macros and checks the viewer's scopes itself.
"""

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from api.dashboard.rendering import error_pages, live_updates
from api.dashboard.rendering.layout import PREFIX
from api.dashboard.rendering.live_updates import Handler
from jobs.errors import NotFound


class PageRoute(APIRoute):
    """Route that serves live updates to an EventSource, and errors as pages."""

    def get_route_handler(self) -> Handler:
        """Returns the handler."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                if live_updates.is_event_stream(request):
                    return await live_updates.stream(request, handle)
                return await handle(request)
            except Exception as error:
                return error_pages.answer(request, error)

        return answer


def router() -> APIRouter:
    """Returns a router for pages."""
    return APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)


not_found = router()


@not_found.get("/{path:path}")
async def no_page(path: str) -> Response:
    """Answers all unknown paths."""
    raise NotFound("no such page")
