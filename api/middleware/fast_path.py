"""ASGI middleware around the application: serves inference calls and new jobs without FastAPI's
routing, which would be most of their time in this process; counts, traces and bounds the rest."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api.compat import inference, oip
from api.compat.anthropic import batches as message_batches
from api.compat.anthropic.messages import routes as messages
from api.compat.openai import batches as openai_batches
from api.compat.openai import embeddings
from api.compat.openai import files as openai_files
from api.compat.openai.chat import routes as chat
from api.compat.openai.conversations import routes as conversations
from api.compat.openai.responses import routes as responses
from api.compat.vllm import scores, tokens
from api.context import Context
from api.dashboard.pages.jobs import new as new_job_page
from api.dashboard.pages.models import playground
from api.dependencies import authorize
from api.gateway.streaming.event_stream import EventStream
from api.http import bodies, errors
from api.http.request_id import headers_of, request_id, with_request_id
from api.http.responses import send_whole
from api.middleware import tracing
from api.middleware.metrics import CountedResponse
from api.routes import calls
from api.routes.jobs import submit
from api.services.intake.call_bodies import HELD
from jobs.errors import Malformed
from jobs.identity import Caller
from jobs.identity import Scope as CallerScope
from jobs.telemetry.metrics import record

MAX_QUERY_PARAMETERS = 64
#: Paths of what is stored: their handlers authenticate first, and bound and spool the body.
_SPOOLED = {
    submit.PATH,
    new_job_page.PATH,
    openai_files.PATH,
    openai_batches.PATH,
    message_batches.PATH,
}

#: And those whose handlers do the same, but store nothing.
_BOUNDED = _SPOOLED | {playground.PATH}

Handler = Callable[[Request, Context, Caller], Awaitable[Response]]

_CALLS: dict[str, Handler] = {
    calls.PATH: calls.infer,
    inference.PATH: inference.infer,
    embeddings.PATH: embeddings.create_embeddings,
    chat.CHAT_PATH: chat.create_chat_completion,
    chat.TEXT_PATH: chat.create_completion,
    chat.INVOKED_PATH: chat.invoke,
    chat.BATCHED_PATH: chat.create_batched_chat,
    responses.PATH: responses.create_response,
    responses.COUNT_PATH: responses.count_input_tokens,
    messages.PATH: messages.create_message,
    messages.COUNT_PATH: messages.count_message_tokens,
    **dict.fromkeys(scores.RERANK_PATHS, scores.rerank),
    **dict.fromkeys(scores.SCORE_PATHS, scores.score),
    tokens.TOKENIZE_PATH: tokens.tokenize,
    tokens.DETOKENIZE_PATH: tokens.detokenize,
}


class FastPath:
    """Outermost ASGI application of an api process.

    It wraps the FastAPI object rather than joining its middleware stack: a call or a new job then
    passes neither the stack nor the router.
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
        route, required, handler = _direct_handler(scope)
        try:
            if handler and required == "infer":  # calls have a histogram of their own
                status = await self._serve_directly(handler, required, scope, receive, send)
                record.request(scope["method"], route, status, None)
                return
            response = CountedResponse(scope, send, route)
            try:
                if error := self._refusal(scope):
                    await _respond(error, scope, receive, response.send)
                elif handler and required:
                    await self._serve_directly(handler, required, scope, receive, response.send)
                else:
                    await self._serve_by_fastapi(scope, receive, response.send)
            finally:
                response.count()
        finally:
            if HELD in scope:
                self.app.state.context.call_bodies.release(scope)

    def _refusal(self, scope: Scope) -> Exception | None:
        """Returns the error of a request that no handler gets."""
        if scope["query_string"].count(b"&") >= MAX_QUERY_PARAMETERS:
            return Malformed(f"the query has more than {MAX_QUERY_PARAMETERS} parameters")
        if scope["method"] == "POST" and scope["path"] in _SPOOLED:
            full: Exception | None = self.app.state.context.free_space.refusal
            return full
        return None

    async def _serve_directly(
        self, handler: Handler, required: CallerScope, scope: Scope, receive: Receive, send: Send
    ) -> int:
        """Sends a handler's response; returns its status."""
        request, context = Request(scope, receive), self.app.state.context
        id = request_id(scope)
        try:
            response = await handler(request, context, await authorize(request, context, required))
            response.raw_headers += headers_of(scope)
        except Exception as error:
            response = errors.error_response(error, id, scope["path"])
        if isinstance(response, EventStream | StreamingResponse):
            await response(scope, receive, send)
        else:
            await send_whole(response, scope, receive, send)
        return response.status_code

    async def _serve_by_fastapi(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in _BOUNDED and not conversations.takes_items(scope["path"]):
            receive = bodies.limit_small_body(scope, receive)
        await self.app(scope, receive, with_request_id(scope, send))


async def _respond(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    response = errors.error_response(error, request_id(scope), scope["path"])
    await response(scope, receive, send)


def call_route(path: str) -> str | None:
    """Returns the route of a POST to a path that makes a call; None of any other."""
    route, required, _ = _direct_handler({"method": "POST", "path": path})
    return route if required == "infer" else None


def _direct_handler(scope: Scope) -> tuple[str, CallerScope | None, Handler | None]:
    """Route template, required scope and handler of a call or a new job; ("", None, None) for
    every other request."""
    if scope["method"] == "POST":
        path = scope["path"]
        if handler := _CALLS.get(path):
            return path, "infer", handler
        if path == submit.PATH:
            return path, "submit", submit.submit_job
        if route := oip.route_of(scope["path"]):
            return route, "infer", oip.answer
    return "", None, None
