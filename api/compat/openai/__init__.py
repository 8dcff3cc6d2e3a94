"""OpenAI's API, under /v1, as an interface to the same files, jobs and models."""

from api.compat.openai.errors import as_openai
from api.http.errors import ERROR_FORMATS

ERROR_FORMATS["/v1"] = ERROR_FORMATS["/invocations"] = ("application/json", as_openai)
