"""The engine `http` against a real server that does as each test says."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from jobs import clock
from jobs.models.model import Limits, Model
from jobs.telemetry.metrics.metrics import REGISTRY
from ops.processes.ports import free_port
from tests.support.cases import each
from tests.support.servers.upstream import Answer, Upstream, serving, shout
from tests.support.tls import Authority, server_context
from tests.support.wait import PATIENCE_S, eventually
from workers.engines.protocol import InvalidInput, Permanent, RateLimited, Transient
from workers.engines.upstream.http_engine import HttpEngine

EngineOf = Callable[..., HttpEngine]
OPEN_S = 100.0


@pytest.fixture
def engine_of(upstream: Upstream) -> Iterator[EngineOf]:
    usual = {
        "url": f"{upstream.url}/shout", "body": {"text": "$input"}, "output": "/results/0/text",
        "timeout_s": PATIENCE_S, "connect_timeout_s": PATIENCE_S, "breaker": {"failures": 100},
    }  # fmt: skip
    limits = Limits(max_launch_s=10 * int(PATIENCE_S))
    with ExitStack() as stack:

        def make(**options: Any) -> HttpEngine:
            model = Model("shout", "1", "http", options=usual | options, limits=limits)
            made = HttpEngine(model)
            return stack.enter_context(closing(made))

        yield make


@pytest.fixture
def let_pass(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets so many seconds pass at once."""
    passed, monotonic = [0.0], clock.monotonic
    monkeypatch.setattr(clock, "monotonic", lambda: monotonic() + sum(passed))
    return passed.append


def run(engine: HttpEngine, value: Any = "a", **params: Any) -> Any:
    (prepared,) = engine.prepare([value], params)
    (output,) = engine.run([prepared.data], params)
    return output


def answers(*scripted: Answer) -> Callable[[Any], Answer]:
    """One after the other; the last one from then on."""
    left = list(scripted)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def test_the_template_is_filled_and_the_output_is_where_the_pointer_leads(
    engine_of: EngineOf, upstream: Upstream
) -> None:
    upstream.answer = answers(Answer({"a/b": [0, {"~": "found"}]}))
    body = {"q": ["$input", "$inputs"], "how": "$params", "n": 3}
    engine = engine_of(body=body, output="/a~1b/1/~0", method="PUT")
    assert run(engine, {"any": ["JSON"]}, lang="de") == "found"
    filled = {"q": [{"any": ["JSON"]}, "$inputs"], "how": {"lang": "de"}, "n": 3}
    assert upstream.bodies() == [filled]
    assert upstream.received[0].headers["content-type"] == "application/json"


def test_connections_are_kept(engine_of: EngineOf, upstream: Upstream) -> None:
    engine = engine_of()
    for n in range(20):
        assert run(engine, f"text {n}") == f"TEXT {n}"
    assert len(upstream.connections) == 1


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (Answer({"error": {"message": "too long"}}, 400), InvalidInput, "400: too long"),
        (Answer({"detail": [{"loc": "x"}]}, 422), InvalidInput, '422: [{"loc":"x"}]'),
        (Answer(status=413, raw=b"<h1>\nToo  large</h1>"), InvalidInput, "413: <h1> Too large<"),
        (Answer("no key", 401), Permanent, "401: no key (its address, model or key"),
        (Answer(None, 403), Permanent, "403"),
        (Answer(None, 404), Permanent, "404"),
        (Answer(None, 302, {"Location": "/x"}), Permanent, "302; redirects are not followed"),
        (Answer({"error": "boom"}, 500), Transient, "500: boom"),
        (Answer(None, 503), Transient, "503"),
        (Answer(None, 408), Transient, "408"),
        (Answer(None, 429), RateLimited, "429"),
        (Answer(raw=b"<html>"), Permanent, "not JSON"),
        (Answer({"results": []}), Permanent, "nothing at /results/0/text"),
        (Answer({"results": {"a": 1}}), Permanent, "nothing at /results/0/text"),
        (Answer(raw=b"x" * 2_000_000), Permanent, "larger than 1 MiB"),
        (Answer({"results": [1]}, reset=True), Transient, "upstream: the connection broke"),
    ],
    ids=lambda value: str(getattr(value, "status", "")),
)
def test_what_an_answer_means_for_its_input(
    engine_of: EngineOf, upstream: Upstream, answer: Answer, kind: type[Exception], words: str
) -> None:
    upstream.answer = answers(answer)
    found = run(engine_of(max_answer_mb=1))
    assert type(found) is kind
    assert words in str(found)
    assert str(upstream.port) not in str(found)
    assert len(str(found)) < 500


def test_who_is_refused_waits_as_long_as_it_is_told(
    engine_of: EngineOf, upstream: Upstream
) -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    for (status, said), case in each(product((429, 503), ("3600", at))):
        with case:
            upstream.answer = answers(Answer(None, status, {"Retry-After": said}))
            found = run(engine_of())
            assert isinstance(found, RateLimited)
            assert 3000 <= found.retry_after_s <= 1.2 * 3600
    for said in ("9" * 400, "Fri, 31 Dec 99999999999 23:59:59 GMT"):  # no clock has that
        upstream.answer = answers(Answer(None, 429, {"Retry-After": said}))
        assert isinstance(run(engine_of()), RateLimited)


def test_who_is_refused_for_a_moment_asks_once_more(
    engine_of: EngineOf, upstream: Upstream
) -> None:
    good, refused = Answer({"results": [{"text": "A"}]}), Answer(None, 429, {"Retry-After": "0"})
    upstream.answer = answers(refused, good)
    engine = engine_of()
    assert run(engine) == "A"
    upstream.answer = answers(refused, refused, good)
    assert isinstance(run(engine), RateLimited)
    assert len(upstream.received) == 4


def test_an_answer_that_hangs_or_drips_is_given_up_in_time(
    engine_of: EngineOf, upstream: Upstream
) -> None:
    engine = engine_of(timeout_s=0.3, connect_timeout_s=0.3)
    drips = Answer({"results": [{"text": "A" * 100}]}, drip_s=0.05)
    upstream.answer = answers(drips)
    assert str(run(engine)) == "upstream: no answer within 0.3 s"
    upstream.answer = lambda request: [upstream.over.wait(PATIENCE_S), Answer()][1]
    assert str(run(engine)) == "upstream: no answer within 0.3 s"


def test_who_does_not_listen_fails_for_now_and_is_connected_to_again(engine_of: EngineOf) -> None:
    port = free_port()  # which no connection gets while nobody listens
    address = {"url": f"http://127.0.0.1:{port}"}
    engine = engine_of(**address)
    with serving(port):
        assert run(engine) == "A"
    found = run(engine_of(**address))
    assert (type(found), str(found)) == (Transient, "upstream: no connection")
    with serving(port):
        assert run(engine) == "A"


def test_its_certificate_is_verified_by_the_system_or_by_a_ca_of_its_own(
    engine_of: EngineOf, tmp_path: Path
) -> None:
    ca = Authority(tmp_path, "ca")
    with serving(tls=server_context(ca.pair("server"), None)) as secured:
        refused = run(engine_of(url=secured.url))
        assert "its certificate isn't trusted" in str(refused)
        assert run(engine_of(url=secured.url, ca=str(ca.cert))) == "A"
    with pytest.raises(ValueError, match=r"options\.ca: /nowhere can't be read"):
        engine_of(ca="/nowhere")


def test_secrets_come_from_outside_and_are_never_repeated(
    engine_of: EngineOf, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("THE_KEY", "sk-very-secret")
    (tmp_path / "other").write_text("another-secret\n")
    headers = {"Authorization": "Bearer env:THE_KEY", "X-Key": f"file:{tmp_path}/other", "X-A": "b"}
    upstream.answer = answers(Answer("wrong: sk-very-secret, another-secret", 401))
    engine = engine_of(headers=headers)
    assert "401: wrong: …, …" in str(run(engine))
    sent = upstream.received[0].headers
    assert sent["authorization"] == "Bearer sk-very-secret"
    assert (sent["x-key"], sent["x-a"]) == ("another-secret", "b")
    for before, blank in product((290, 1195), "- "):  # where words are cut
        said = blank * before + "sk-very-secret"
        for answer in (Answer({"error": said}, 400), Answer(status=400, raw=said.encode())):
            upstream.answer = answers(answer)
            assert "sk-" not in str(run(engine))


def test_a_secret_that_is_not_there_keeps_the_model_from_loading(
    engine_of: EngineOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("THE_KEY", raising=False)
    with pytest.raises(ValueError, match="Authorization: the environment variable THE_KEY is not"):
        engine_of(headers={"Authorization": "Bearer env:THE_KEY"})
    with pytest.raises(ValueError, match="X-Key: /nowhere can't be read: No such file"):
        engine_of(headers={"X-Key": "file:/nowhere"})


def test_its_health_is_asked_before_it_serves(engine_of: EngineOf, upstream: Upstream) -> None:
    upstream.answer = lambda request: Answer(None, 200 if request.path == "/well" else 500)
    engine_of(health="/well")
    with pytest.raises(Exception, match="its health check answered 500"):
        engine_of(health="/ill")


def test_while_the_breaker_is_open_nobody_asks_and_nobody_pays(
    engine_of: EngineOf, upstream: Upstream, let_pass: Callable[[float], None]
) -> None:
    upstream.answer = answers(Answer(None, 500))
    engine = engine_of(breaker={"failures": 3, "open_s": OPEN_S})

    def is_open() -> float | None:
        return REGISTRY.get_sample_value("millrace_upstream_breaker_open", {"upstream": "shout@1"})

    assert [type(run(engine)) for _ in range(2)] == [Transient] * 2
    assert is_open() == 0
    assert type(run(engine)) is Transient
    assert is_open() == 1
    room = engine.room()
    assert room.launches == 0
    assert 0 < room.closed_s <= OPEN_S
    with pytest.raises(RateLimited, match="left alone") as refused:
        run(engine)
    assert 0 < refused.value.retry_after_s <= OPEN_S
    assert len(upstream.received) == 3
    let_pass(OPEN_S)
    assert engine.room().launches == 1
    assert type(run(engine)) is RateLimited, "who tries whether it is back pays nothing"
    assert engine.room().closed_s > 0
    let_pass(OPEN_S)
    assert engine.room().launches == 1
    upstream.answer = answers(Answer({"results": [{"text": "back"}]}))
    assert run(engine) == "back"
    assert is_open() == 0
    assert engine.room().launches >= 4


def test_while_one_tries_others_are_told_at_once(
    engine_of: EngineOf, upstream: Upstream, let_pass: Callable[[float], None]
) -> None:
    upstream.answer = answers(Answer(None, 500))
    engine = engine_of(breaker={"failures": 1, "open_s": OPEN_S})
    run(engine)
    let_pass(OPEN_S)
    assert engine.room().launches == 1
    asked, may_answer = len(upstream.received), threading.Event()

    def answer(request: Any) -> Answer:
        may_answer.wait(PATIENCE_S)
        return shout(request)

    upstream.answer = answer
    with ThreadPoolExecutor(1) as threads:
        trying = threads.submit(run, engine)
        eventually(lambda: len(upstream.received) > asked)
        room = engine.room()
        assert (room.launches, room.closed_s) == (0, 1.0)
        with pytest.raises(RateLimited):
            run(engine)
        may_answer.set()
        assert trying.result() == "A"
    assert engine.room().launches >= 4


def test_where_health_can_be_asked_no_input_is_sent_to_try(
    engine_of: EngineOf, upstream: Upstream, let_pass: Callable[[float], None]
) -> None:
    upstream.answer = answers(Answer({"results": [{"text": "x"}]}))
    engine = engine_of(health="/well", breaker={"failures": 1, "open_s": OPEN_S})
    upstream.answer = answers(Answer({"results": [{"text": "x"}]}, 500))
    assert isinstance(run(engine), Transient)
    let_pass(OPEN_S)
    before = len(upstream.received)
    assert isinstance(run(engine), RateLimited)
    assert [request.path for request in upstream.received[before:]] == ["/well"]


def test_a_quota_that_is_used_up_closes_it_for_as_long_as_it_says(
    engine_of: EngineOf, upstream: Upstream
) -> None:
    upstream.answer = answers(Answer(None, 429, {"Retry-After": "250"}))
    engine = engine_of(breaker={"failures": 2, "open_s": 60})
    assert [type(run(engine)) for _ in range(2)] == [RateLimited] * 2
    assert len(upstream.received) == 2, "so long nobody waits in a launch"
    assert 100 < engine.room().closed_s <= 250


def test_its_room_grows_while_it_serves_and_shrinks_when_it_refuses(
    engine_of: EngineOf, upstream: Upstream
) -> None:
    engine = engine_of(concurrency={"min": 2, "start": 4, "max": 16})
    together = threading.Barrier(4)

    def answer(request: Any) -> Answer:
        together.wait(PATIENCE_S)  # or they would not be in flight together
        return Answer({"results": [{"text": json.loads(request.body)["text"]}]})

    assert engine.room().launches == 4
    upstream.answer = answer
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: run(engine, str(n)), range(40)))
    grown = engine.room().launches
    assert grown > 4
    upstream.answer = answers(Answer(None, 503))
    run(engine)
    assert engine.room().launches < grown
