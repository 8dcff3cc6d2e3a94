"""Spans of requests, in their client's trace or in a sampled one of our own."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.compat import oip
from api.compat.openai import embeddings
from api.http.request_id import request_id
from api.routes import calls
from api.routes.jobs import submit
from jobs.telemetry.tracing import spans
from jobs.telemetry.tracing.spans import NO_SPAN, Span

_PROBES = frozenset(
    ("/livez", "/readyz", "/health", "/ping", "/v2/health/live", "/v2/health/ready", "/metrics")
)
_SHORT = {
    calls.PATH,
    embeddings.PATH,
    submit.PATH,
}  #: Routes of the fast path, whose scope has no route.
_PARENT, _STATE = b"traceparent", b"tracestate"


def request_span(scope: Scope) -> Span:
    """Returns the span of a request; without a context where it isn't traced."""
    if not spans.is_enabled() or scope["path"] in _PROBES:
        return NO_SPAN
    parent = state = None
    for name, value in scope["headers"]:
        if name == _PARENT:
            parent = value.decode("latin-1")
        elif name == _STATE:
            state = value.decode("latin-1")
    return spans.server_span(scope["method"], parent, state)


async def serve(span: Span, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Serves a request within its span, and adds `traceparent` to the response."""
    assert span.context
    header = span.context.header.encode()

    async def send_traced(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), (_PARENT, header)]
            _note(span, scope, message["status"])
        await send(message)

    with span:
        await app(scope, receive, send_traced)


def _note(span: Span, scope: Scope, status: int) -> None:
    """Sets attributes by OpenTelemetry's HTTP conventions: a client's fault is no error."""
    route = route_of(scope)
    span.name = f"{scope['method']} {route}" if route else scope["method"]
    span.error = str(status) if status >= 500 else ""
    span.set_attributes(
        http__request__method=scope["method"],
        http__route=route,
        http__response__status_code=status,
        url__path=scope["path"],
        url__scheme=scope.get("scheme"),
        network__protocol__version=scope.get("http_version"),
        millrace__request__id=request_id(scope),
    )


def route_of(scope: Scope) -> str | None:
    """Returns the route's template; None where there is none."""
    if template := getattr(scope.get("route"), "path", None):
        return str(template)
    path: str = scope["path"]
    return path if path in _SHORT else oip.route_of(path) or None
