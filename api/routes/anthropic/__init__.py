"""Anthropic's Message Batches, under /v1/messages: thin words for the same jobs."""

from api.errors import WORDINGS
from api.routes.anthropic.wording import worded

WORDINGS["/v1/messages"] = ("application/json", worded)
