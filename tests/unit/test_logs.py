"""Lines of a log hold no rows: PostgreSQL quotes them when it says what went wrong."""

import io
import logging

import pytest

from jobs import logs


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", logging.WARNING)
    logs.configure("test")
    return stream


def test_what_postgres_quotes_of_a_row_is_left_out(written: io.StringIO) -> None:
    said = (
        "canceling statement\nDETAIL:  Failing row (secret)\nCONTEXT:  COPY items: secret\nHINT: x"
    )
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


@pytest.mark.parametrize("name", ["boto3", "botocore.auth", "s3transfer", "kombu", "httpx"])
def test_libraries_that_hold_credentials_say_little(written: io.StringIO, name: str) -> None:
    assert not logging.getLogger(name).isEnabledFor(logging.INFO)
    logging.getLogger(name).debug("Authorization: AWS4-HMAC-SHA256 Credential=secret")
    assert written.getvalue() == ""
