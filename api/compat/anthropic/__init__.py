"""Anthropic's Messages and Message Batches, under /v1/messages, as an interface to the same calls
and jobs."""

from api.compat.anthropic.errors import as_anthropic
from api.compat.anthropic.models import has_marks
from api.compat.anthropic.rate_limits import anthropic_headers
from api.http.errors import ERROR_FORMATS, ERROR_STATUSES, QUOTA_HEADERS
from api.http.request_id import ALSO, SHARED_PATHS
from jobs.errors import NoWorker, Overloaded

_PREFIX = "/v1/messages"
_OVERLOADED = 529

ERROR_FORMATS[_PREFIX] = ("application/json", as_anthropic)
ERROR_STATUSES[_PREFIX] = {Overloaded.code: _OVERLOADED, NoWorker.code: _OVERLOADED}
QUOTA_HEADERS[_PREFIX] = anthropic_headers
ALSO[_PREFIX] = b"request-id"
SHARED_PATHS["/v1/models"] = lambda headers: _PREFIX if has_marks(headers) else None
