"""Client of the HTTP API: the package `millrace` of the distribution (see pyproject.toml).

    from millrace import Client

    client = Client()
    for result in client.map("minilm", ["a text", "another"]):
        print(result.output)

It needs httpx and the standard library alone, and imports no other package of this repository.
"""

from millrace import errors, webhooks
from millrace.aio.client import AsyncClient
from millrace.aio.results import AsyncResults
from millrace.errors import (
    APIConnectionError,
    APIError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    ConflictError,
    InputError,
    InternalServerError,
    ItemError,
    JobChanged,
    JobFailed,
    MillraceError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitError,
    StreamError,
    UnprocessableEntityError,
    VerificationError,
    WaitTimeout,
)
from millrace.inputs.lines import Item
from millrace.objects import Call, Chat, ChatChunk, Job, Model, Result
from millrace.sync.client import Client
from millrace.sync.results import Results
from millrace.tls import tls_context

__all__ = [
    "APIConnectionError",
    "APIError",
    "APIStatusError",
    "APITimeoutError",
    "AsyncClient",
    "AsyncResults",
    "AuthenticationError",
    "BadRequestError",
    "Call",
    "Chat",
    "ChatChunk",
    "Client",
    "ConflictError",
    "InputError",
    "InternalServerError",
    "Item",
    "ItemError",
    "Job",
    "JobChanged",
    "JobFailed",
    "MillraceError",
    "Model",
    "NotFoundError",
    "PermissionDeniedError",
    "RateLimitError",
    "Result",
    "Results",
    "StreamError",
    "UnprocessableEntityError",
    "VerificationError",
    "WaitTimeout",
    "errors",
    "tls_context",
    "webhooks",
]
