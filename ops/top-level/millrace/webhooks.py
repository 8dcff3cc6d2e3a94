"""Verification of webhooks, by the Standard Webhooks specification."""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from millrace import clock
from millrace.errors import VerificationError

_PREFIX = "whsec_"
_TOLERANCE_S = 300


def verify(
    payload: bytes | str,
    headers: Mapping[str, str],
    secret: str,
    *,
    tolerance_s: float = _TOLERANCE_S,
) -> dict[str, Any]:
    """Returns the event of a webhook: `type`, `timestamp` and `data`, the job.

    payload: the body as it came; headers: of the request, in any case; secret: `whsec_…`;
    tolerance_s: how far its time may be from now. Raises VerificationError where id, time, body and
    signature don't agree. The same event may come again: drop it by its `webhook-id`.
    """
    given = {str(name).lower(): str(value) for name, value in headers.items()}
    try:
        id, at, signatures = (given[f"webhook-{n}"] for n in ("id", "timestamp", "signature"))
    except KeyError as error:
        raise VerificationError(f"the header {error.args[0]} is missing") from None
    if not (at.isascii() and at.isdigit() and abs(clock.now() - int(at)) <= tolerance_s):
        raise VerificationError(f"its time is more than {tolerance_s:g} s off, or no time")
    body = payload.encode() if isinstance(payload, str) else bytes(payload)
    wanted = hmac.digest(_key(secret), f"{id}.{at}.".encode() + body, hashlib.sha256)
    expected = f"v1,{base64.b64encode(wanted).decode()}"
    agree = [hmac.compare_digest(expected.encode(), one.encode()) for one in signatures.split()]
    if not any(agree):
        raise VerificationError("no signature is that of this body and this secret")
    event = json.loads(body)
    assert isinstance(event, dict)
    return event


def _key(secret: str) -> bytes:
    """Returns the bytes of a secret. Raises ValueError for one that is none."""
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(
            f"a secret is {_PREFIX} and base64; see `millrace webhook-secret`"
        ) from None
