"""What a refused call is told, and when to come back."""

import math

import pytest

from api.gateway.rejections import rejection
from api.http.errors import problem_response
from api.http.retry_after import retry_delay_s
from jobs.calls.lanes import Rejection, Terms
from jobs.errors import MillraceError, NoWorker, Overloaded, TooLate
from jobs.models.model import Model

MODEL = Model("m", "1", "echo")
TERMS = Terms(allowed_ms=190.0, one_ms=100.0)


def error(why: str, wait_ms: float = 0.0, load_ms: float = 0.0) -> MillraceError:
    return rejection(Rejection(why, wait_ms), MODEL, TERMS, load_ms)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("why", "kind", "status", "code"),
    [
        ("late", TooLate, 429, "predicted_wait"),
        ("overloaded", Overloaded, 503, "overloaded"),
        ("no_worker", NoWorker, 503, "no_worker"),
    ],
)
def test_each_refusal_has_its_status(
    why: str, kind: type[MillraceError], status: int, code: str
) -> None:
    found = error(why)
    assert type(found) is kind
    assert (found.status, found.code, found.retryable) == (status, code, True)


@pytest.mark.parametrize(
    ("why", "wait_ms", "load_ms", "drain_s"),
    [
        ("late", 590.0, 0.0, 0.5),  # 590 + 100 - 190: when a launch of its own would be in time
        ("overloaded", 800.0, 0.0, 0.8),
        ("no_worker", 0.0, 12_000.0, 12.0),
        ("no_worker", 0.0, 0.0, 1.5),
        ("late", 90.5, 0.0, 0.02),  # half a millisecond too late: still no reason to hammer
        ("late", 1e9, 0.0, 80.0),
    ],
)
def test_retry_after_is_the_predicted_drain_and_never_the_same(
    why: str, wait_ms: float, load_ms: float, drain_s: float
) -> None:
    found = [error(why, wait_ms, load_ms).retry_after_s or 0.0 for _ in range(200)]
    assert all(drain_s <= soon_s <= 1.5 * drain_s for soon_s in found)
    assert max(found) - min(found) > drain_s / 10
    assert max(found) <= 120


def test_retry_after_is_sent_in_seconds_and_in_milliseconds() -> None:
    headers = problem_response(error("late", 2_590.0), "req_1").headers
    soon_ms = int(headers["retry-after-ms"])
    assert 2_500 <= soon_ms <= 3_750
    assert int(headers["retry-after"]) == math.ceil(soon_ms / 1000)
    assert len({retry_delay_s() for _ in range(20)}) > 1  # of a call that was lost
