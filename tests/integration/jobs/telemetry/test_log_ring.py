"""The last lines of a worker's log, in a real Redis."""

import logging
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
import redis

from jobs.telemetry import log_ring
from jobs.telemetry.log_ring import LogRing, log_key, parse_lines

_log = logging.getLogger("tests.ring")


@pytest.fixture
def ring(redis_client: "redis.Redis") -> Iterator[LogRing]:
    """One that hasn't a thread: the test writes."""
    made = LogRing(redis_client, 7, 100)
    _log.setLevel(logging.INFO)
    _log.addHandler(made)
    yield made
    _log.removeHandler(made)


def kept(client: "redis.Redis") -> list[dict[str, Any]]:
    found: Any = client.xrange(log_key(7))
    return parse_lines((id, [part for pair in fields.items() for part in pair])
                       for id, fields in found)  # fmt: skip


def test_lines_are_as_on_standard_error_and_without_payloads(
    ring: LogRing, redis_client: "redis.Redis"
) -> None:
    _log.warning(
        "it went wrong\nDETAIL: Key (x)=(a quoted row)", extra={"job_id": "job_1", "body": "x"}
    )
    quoting = "why\nCONTEXT: COPY items, line 1: a quoted row"
    try:
        raise ValueError(quoting)
    except ValueError:
        _log.exception("failed")
    ring.write()
    first, second = kept(redis_client)
    assert (first["level"], first["message"], first["job_id"]) == (
        "warning", "it went wrong", "job_1",
    )  # fmt: skip
    assert "ValueError: why" in second["exception"]
    assert b"a quoted row" not in orjson.dumps([first, second])
    assert "body" not in first


def test_so_many_are_kept_and_for_so_long(ring: LogRing, redis_client: "redis.Redis") -> None:
    for n in range(1000):
        _log.info("line %d", n)
        if n % 100 == 99:
            ring.write()
    lines = kept(redis_client)
    assert lines[-1]["message"] == "line 999"
    assert 100 <= len(lines) <= 300  # Redis removes whole nodes
    left_s: Any = redis_client.ttl(log_key(7))
    assert 0 < left_s <= 86_400


def test_lines_that_come_faster_than_they_are_written_are_dropped_and_counted(
    ring: LogRing, redis_client: "redis.Redis"
) -> None:
    for n in range(log_ring.BUFFERED + 20):
        _log.info("line %d", n)
    ring.write()
    lines = kept(redis_client)
    assert lines[-1]["message"].startswith("20 lines were dropped")
    assert lines[-2]["message"] == f"line {log_ring.BUFFERED + 19}"


def test_while_redis_is_away_lines_are_dropped_and_nothing_waits(
    ring: LogRing, redis_client: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(**_: object) -> None:
        raise redis.ConnectionError("away")

    with monkeypatch.context() as patch:
        patch.setattr(redis_client, "pipeline", away)
        _log.info("lost")
        ring.write()
    _log.info("back")
    ring.write()
    assert [line["message"] for line in kept(redis_client)] == [
        "back", "1 lines were dropped: Redis was away, or they were too many",
    ]  # fmt: skip


def test_a_long_line_is_cut(ring: LogRing, redis_client: "redis.Redis") -> None:
    _log.info("x" * 100_000)
    ring.write()
    [line] = kept(redis_client)
    assert len(line["message"]) < 2100
    assert line["message"].endswith("…")


def test_a_stopped_ring_has_written_everything(redis_client: "redis.Redis") -> None:
    ring = LogRing(redis_client, 7, 100)
    ring.start()
    logging.getLogger("tests.other").error("the last")
    ring.stop()
    assert [line["message"] for line in kept(redis_client)] == ["the last"]
    logging.getLogger("tests.other").error("after it")
    ring.write()
    assert len(kept(redis_client)) == 1


def test_entries_of_another_release_are_left_out() -> None:
    assert parse_lines([(b"1-0", [b"other", b"x"]), (b"2-0", [])]) == []
