"""Client of the HTTP API: the package `millrace` of the distribution (pyproject.toml).

    from millrace import Client

    client = Client()
    for result in client.map("minilm", ["a text", "another"]):
        print(result.output)

It needs httpx and the standard library alone, and imports no other package of this repository.
"""

from . import errors, webhooks
from .aio.client import AsyncClient
from .aio.results import AsyncResults
from .errors import (
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
from .inputs import Item
from .objects import Call, Chat, ChatChunk, Job, Model, Result
from .sync.client import Client
from .sync.results import Results
from .tls import tls_context

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
