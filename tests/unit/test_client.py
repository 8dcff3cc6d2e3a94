"""The client of the command line: a job is submitted once, though the connection breaks."""

from collections.abc import Callable

import httpx
import pytest

from jobs import clock
from ops.client import Client, Refused

Handler = Callable[[httpx.Request], httpx.Response]
LINES = [b'"x"\n', b'"y"\n']


def client(monkeypatch: pytest.MonkeyPatch, *ends: int | Exception) -> tuple[Client, list[str]]:
    """A client whose requests end so, one after the other; and what it sends."""
    sent: list[str] = []
    left = list(ends)

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append(f"{request.headers['idempotency-key']} {request.read()!r}")
        end = left.pop(0)
        if isinstance(end, Exception):
            raise end
        return httpx.Response(end, json={"id": "job_1"})

    made = Client("http://x")
    made.close()
    made._http = httpx.Client(base_url="http://x", transport=httpx.MockTransport(handle))
    monkeypatch.setattr(clock, "sleep", lambda seconds: None)
    return made, sent


def test_a_job_whose_answer_was_lost_is_sent_again_under_the_same_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = [httpx.ReadError("reset"), httpx.ConnectError("restarting"), 409]
    made, sent = client(monkeypatch, *broken, 202)
    assert made.submit(LINES, model="echo")["id"] == "job_1"
    assert len(sent) == 4
    assert len(set(sent)) == 1
    assert sent[0].endswith(repr(b"".join(LINES)))


def test_each_job_has_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made, sent = client(monkeypatch, 202, 202)
    made.submit(LINES, model="echo")
    made.submit(LINES, model="echo")
    assert len(set(sent)) == 2


@pytest.mark.parametrize(
    ("end", "raised"), [(httpx.ConnectError("nobody"), httpx.ConnectError), (422, Refused)]
)
def test_where_nobody_listens_or_it_is_refused_it_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, end: int | Exception, raised: type[Exception]
) -> None:
    made, sent = client(monkeypatch, end)
    with pytest.raises(raised):
        made.submit(LINES, model="echo")
    assert len(sent) == 1


def test_a_stream_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, sent = client(monkeypatch, httpx.ReadError("reset"))
    with pytest.raises(httpx.ReadError):
        made.submit(iter(LINES), model="echo")
    assert len(sent) == 1


def test_the_key_goes_with_every_request() -> None:
    for key, sent in ((None, None), ("mk_x", "Bearer mk_x")):
        made = Client("http://x", key)
        assert made._http.headers.get("authorization") == sent
        made.close()
