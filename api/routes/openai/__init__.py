"""OpenAI's API, under /v1: thin words for the same files, jobs and models."""

from api.errors import WORDINGS
from api.routes.openai.wording import as_openai

WORDINGS["/v1"] = ("application/json", as_openai)
