"""Webhooks: those of the platform are taken, all others refused, as the reference does."""

import json
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from millrace import VerificationError, clock
from millrace.webhooks import verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
BODY = '{"type": "job.completed", "data": {"id": "job_1"}}'
NOW_S = 1_795_282_083


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", lambda: float(NOW_S))


def headers(body: str = BODY, secret: str = SECRET, at_s: int = NOW_S) -> dict[str, str]:
    at = datetime.fromtimestamp(at_s, UTC)
    signature = Webhook(secret).sign("msg_1", at, body)
    return {"webhook-id": "msg_1", "webhook-timestamp": str(at_s), "webhook-signature": signature}


def test_an_event_of_the_platform_is_returned_by_a_good_secret() -> None:
    assert verify(BODY.encode(), headers(), SECRET) == json.loads(BODY)
    named = {name.title(): value for name, value in headers().items()}
    assert verify(BODY, named, SECRET)["type"] == "job.completed"
    signatures = [headers(secret=one)["webhook-signature"] for one in (OTHER, SECRET)]
    both = headers() | {"webhook-signature": " ".join(signatures)}  # while secrets rotate
    assert verify(BODY, both, SECRET)
    with pytest.raises(ValueError, match="millrace webhook-secret"):
        verify(BODY, headers(), "whsec_no secret")


@pytest.mark.parametrize(
    ("body", "given", "why"),
    [
        (BODY + " ", headers(), "no signature is that of this body"),
        (BODY, headers(secret=OTHER), "no signature"),
        (BODY, headers() | {"webhook-id": "msg_2"}, "no signature"),
        (BODY, headers() | {"webhook-signature": "é v1, v1a,x"}, "no signature"),
        (BODY, headers(at_s=NOW_S - 301), "more than 300 s off"),
        (BODY, headers(at_s=NOW_S + 301), "more than 300 s off"),
        (BODY, headers() | {"webhook-timestamp": "²"}, "or no time"),
        (BODY, {}, "the header webhook-id is missing"),
    ],
)
def test_any_other_is_refused(body: str, given: dict[str, str], why: str) -> None:
    with pytest.raises(VerificationError, match=why):
        verify(body, given, SECRET)
