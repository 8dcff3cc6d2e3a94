"""ASGI middleware around the application: serves inference calls without FastAPI's routing, which
would be most of the time that a call takes in this process; counts, traces and bounds the rest."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response
from starlette.types import Receive, Scope, Send

from api.compat import oip
from api.compat.anthropic import batches as message_batches
from api.compat.openai import batches as openai_batches
from api.compat.openai import embeddings
from api.compat.openai import files as openai_files
from api.context import Context
from api.dependencies import authorize
from api.http import bodies, errors
from api.http.request_id import HEADER, request_id, with_request_id
from api.http.responses import send_whole
from api.middleware import tracing
from api.middleware.metrics import CountedResponse
from api.routes import calls
from api.routes.jobs import submit
from api.services.call_bodies import HELD
from jobs.errors import Malformed
from jobs.identity import Caller
from jobs.telemetry.metrics import record

MAX_QUERY_PARAMETERS = 64
#: Paths of what is stored: their handlers authenticate first, and bound and spool the body.
_SPOOLED = {submit.PATH, openai_files.PATH, openai_batches.PATH, message_batches.PATH}

CallHandler = Callable[[Request, Context, Caller], Awaitable[Response]]


class FastPath:
    """Outermost ASGI application of an api process.

    It wraps the FastAPI object rather than joining its middleware stack: a call then passes
    neither the stack nor the router.
    """

    def __init__(self, app: FastAPI) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif (span := tracing.request_span(scope)).context:
            await tracing.serve(span, self._serve, scope, receive, send)
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        route, handler = _call_handler(scope)
        if handler:
            await self._serve_call(route, handler, scope, receive, send)
            return
        response = CountedResponse(scope, send)
        try:
            await self._serve_by_fastapi(scope, receive, response.send)
        finally:
            response.count()
            if HELD in scope:
                self.app.state.context.call_bodies.release(scope)

    async def _serve_call(
        self, route: str, handler: CallHandler, scope: Scope, receive: Receive, send: Send
    ) -> None:
        request, context = Request(scope, receive), self.app.state.context
        id = request_id(scope)
        try:
            response = await handler(request, context, await authorize(request, context, "infer"))
            response.raw_headers.append((HEADER, id.encode()))
        except Exception as error:
            response = errors.error_response(error, id, scope["path"])
        await send_whole(response, scope, receive, send)
        record.request(scope["method"], route, response.status_code, None)

    async def _serve_by_fastapi(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["query_string"].count(b"&") >= MAX_QUERY_PARAMETERS:
            error = Malformed(f"the query has more than {MAX_QUERY_PARAMETERS} parameters")
            response = errors.error_response(error, request_id(scope), scope["path"])
            await response(scope, receive, send)
            return
        if scope["path"] not in _SPOOLED:
            receive = bodies.limit_small_body(scope, receive)
        elif scope["method"] == "POST" and (full := self.app.state.context.free_space.refusal):
            response = errors.error_response(full, request_id(scope), scope["path"])
            await response(scope, receive, send)
            return
        await self.app(scope, receive, with_request_id(scope, send))


def _call_handler(scope: Scope) -> tuple[str, CallHandler | None]:
    """Route template and handler of an inference call; ("", None) for every other request."""
    if scope["method"] == "POST":
        if scope["path"] == calls.PATH:
            return calls.PATH, calls.infer
        if scope["path"] == embeddings.PATH:
            return embeddings.PATH, embeddings.create_embeddings
        if route := oip.route_of(scope["path"]):
            return route, oip.answer
    return "", None
