"""Lines of a log: what they hold, whom they are about, and that they hold no rows: PostgreSQL
quotes them when it says what went wrong."""

import io
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest

from jobs.telemetry import logs
from jobs.telemetry.tracing.context import CURRENT, new_trace
from tests.support.wait import PATIENCE_S

Configure = Callable[..., io.StringIO]


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Configure]:
    """Logs in such a form, into what it returns."""
    monkeypatch.setattr("sys.excepthook", sys.excepthook)
    monkeypatch.setattr(logs, "_process_fields", {})

    def configured(form: str, stream: io.StringIO | None = None) -> io.StringIO:
        stream = stream or io.StringIO()
        root = logging.getLogger()  # pytest has put its own handlers there by now
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setattr(root, "handlers", [])
        monkeypatch.setattr(root, "level", logging.WARNING)
        logs.configure("test", form)
        return stream

    yield configured
    logging.captureWarnings(False)


def line(stream: io.StringIO) -> dict[str, Any]:
    (said,) = stream.getvalue().splitlines()
    found: dict[str, Any] = orjson.loads(said)
    return found


@pytest.mark.parametrize("form", ["json", "human"])
def test_what_postgres_quotes_of_a_row_is_left_out(configure: Configure, form: str) -> None:
    written = configure(form)
    quoted = "DETAIL:  Failing row (secret)\nCONTEXT:  COPY items: secret"
    said = f"canceling statement\n{quoted}\nHINT: x"
    logging.getLogger("a").warning("can't store: %s", said)
    try:
        raise ValueError(said)
    except ValueError:
        logging.getLogger("a").exception("unexpected")
    text = written.getvalue()
    assert "secret" not in text
    assert text.count("canceling statement") == 2
    assert text.count("HINT: x") == 2
    assert "Traceback" in text


def test_libraries_that_hold_credentials_say_little(configure: Configure) -> None:
    written = configure("auto")
    for name in ("boto3", "botocore.auth", "s3transfer", "kombu", "httpx"):
        assert not logging.getLogger(name).isEnabledFor(logging.INFO)
        logging.getLogger(name).debug("Authorization: AWS4-HMAC-SHA256 Credential=secret")
        assert written.getvalue() == ""


def test_a_line_is_an_object_with_its_time_in_utc_and_its_exception(configure: Configure) -> None:
    written = configure("auto")  # what it goes to is no terminal
    logging.getLogger("a.b").warning("%d of\n%s", 2, "\udc80é")
    found = line(written)
    at = datetime.fromisoformat(found["timestamp"])
    assert at.utcoffset() == timedelta(0)
    assert found["timestamp"].endswith("Z")
    assert (found["level"], found["logger"], found["process"]) == ("warning", "a.b", "test")
    assert found["message"] == "2 of\n?é"
    assert found["pid"] > 0
    assert "exception" not in found
    written = configure("json")
    try:
        raise ValueError("gone")
    except ValueError:
        logging.getLogger("a").exception("unexpected")
    found = line(written)
    assert found["message"] == "unexpected"
    assert found["exception"].startswith("Traceback")
    assert found["exception"].endswith("ValueError: gone")


def test_a_line_says_what_it_is_about_and_in_which_span_it_is_written(configure: Configure) -> None:
    written = configure("json")
    logs.set_process_fields(worker="7")
    with logs.bound_fields(job_id="job_1"), logs.bound_fields(tenant="acme"):
        logging.getLogger("a").warning("x", extra={"request_id": "req_1", "input": "a payload"})
    found = line(written)
    about = {name: found[name] for name in logs.FIELDS if name in found}
    assert about == {"worker": "7", "job_id": "job_1", "tenant": "acme", "request_id": "req_1"}
    assert "payload" not in written.getvalue()
    assert "trace_id" not in found
    written = configure("json")
    logging.getLogger("a").warning("that is over")
    assert "job_id" not in line(written)
    written = configure("json")
    context = new_trace(1.0)
    token = CURRENT.set(context)
    logging.getLogger("a").warning("x")
    CURRENT.reset(token)
    found = line(written)
    assert context.header == f"00-{found['trace_id']}-{found['span_id']}-01"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_people_and_a_terminal_read_the_same_in_words(configure: Configure) -> None:
    written = configure("human")
    with logs.bound_fields(job_id="job_1"):
        logging.getLogger("a").warning("it waits")
    assert written.getvalue().endswith(" test WARNING a: it waits [job_id=job_1]\n")
    written = configure("auto", Terminal())
    logging.getLogger("a").warning("it waits")
    assert written.getvalue().endswith(" test WARNING a: it waits\n")


@pytest.mark.heavy
def test_warnings_and_uncaught_exceptions_are_lines_too() -> None:
    code = (
        "import warnings; from jobs.telemetry import logs; logs.configure('x', 'json');"
        "warnings.warn('old'); raise ValueError('gone')"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False, text=True)
    first, last = map(orjson.loads, done.stderr.splitlines())
    assert (first["logger"], "old" in first["message"]) == ("py.warnings", True)
    assert (last["level"], last["message"]) == ("critical", "terminated by ValueError")
    assert "gone" in last["exception"]
