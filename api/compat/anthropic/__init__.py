"""Anthropic's Message Batches, under /v1/messages: thin words for the same jobs."""

from api.compat.anthropic.errors import worded
from api.http.errors import WORDINGS

WORDINGS["/v1/messages"] = ("application/json", worded)
