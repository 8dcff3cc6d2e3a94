"""JSON responses, encoded by orjson."""

from typing import Any

import orjson
from fastapi import Response

from api.http import bodies


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Returns a response of this value as JSON."""
    return Response(orjson.dumps(value), status, headers, media_type=bodies.JSON)
