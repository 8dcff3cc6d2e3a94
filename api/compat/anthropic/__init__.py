"""Anthropic's Message Batches, under /v1/messages, as an interface to the same jobs."""

from api.compat.anthropic.errors import as_anthropic
from api.http.errors import ERROR_FORMATS

ERROR_FORMATS["/v1/messages"] = ("application/json", as_anthropic)
