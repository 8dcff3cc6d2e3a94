"""Requests: a job is created once though its answer is lost, and what may pass is tried again; by
TLS the api is verified."""

import copy
import json
import pickle
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from pathlib import Path
from traceback import format_exception
from typing import Any

import httpx
import pytest

from millrace import APIConnectionError, Client, Result, errors, tls_context
from millrace.tls import verification
from tests.support.cases import each
from tests.support.tls import Authority, tls_proxy
from tests.unit.millrace.servers import Recorder, answered_by, async_answered_by, breaking, meeting

LINES = [b'"x"\n', b'"y"\n']
JOB = {"id": "job_1", "generation": 1, "state": "queued", "counts": {}}


def client_of(*ends: int | Exception | httpx.Response) -> tuple[Client, list[str]]:
    """A client whose requests end so, one after the other; and what it sends."""
    sent: list[str] = []
    left = list(ends)

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append(f"{request.headers.get('idempotency-key')} {request.read()!r}")
        end = left.pop(0)
        if isinstance(end, Exception):
            raise end
        return end if isinstance(end, httpx.Response) else httpx.Response(end, json=JOB)

    return answered_by(handle), sent


BROKEN = [httpx.ReadError("reset"), httpx.ConnectError("restarting")]


def refusal(status: int, *, retryable: bool, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, json={"retryable": retryable, "code": "c"}, headers=named)


def test_a_job_whose_answer_was_lost_is_sent_again_under_the_same_key(pauses: list[float]) -> None:
    in_flight = refusal(409, retryable=True)
    for lines in (LINES, iter(["x", "y"])):
        made, sent = client_of(200, *BROKEN, in_flight, 202)
        made.jobs.get("job_1")
        sent.clear()
        assert made.jobs.submit("echo", lines).id == "job_1"
        assert len(sent) == 4
        assert len(set(sent)) == 1
        assert sent[0].endswith(repr(b"".join(LINES)))
        assert pauses == sorted(pauses)
        pauses.clear()
    made, sent = client_of(202, 202, 202)
    for key in (None, None, "mine"):
        made.jobs.submit("echo", LINES, idempotency_key=key)
    assert len(set(sent)) == 3, "each job has a key of its own"
    assert sent[2].startswith('"mine" ')


@pytest.mark.anyio
async def test_an_api_that_broke_a_first_connection_off_is_waited_for(pauses: list[float]) -> None:
    made, sent = client_of(*BROKEN, 202)
    assert made.jobs.submit("echo", LINES).id == "job_1"
    assert (len(sent), len(pauses)) == (3, 2)
    left: list[Any] = [*BROKEN, httpx.Response(202, json=JOB)]

    def handle(_: httpx.Request) -> httpx.Response:
        end = left.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    async with async_answered_by(handle) as client:
        assert (await client.jobs.submit("echo", LINES)).id == "job_1"
    assert left == []


@pytest.mark.parametrize(
    ("end", "raised"),
    [
        (httpx.ConnectError("nobody"), errors.APIConnectionError),
        (422, errors.UnprocessableEntityError),
        (401, errors.AuthenticationError),
        (404, errors.NotFoundError),
        (refusal(429, retryable=False), errors.RateLimitError),
        (refusal(503, retryable=False), errors.APIStatusError),
    ],
)
def test_where_nobody_ever_answered_or_it_is_refused_it_is_not_sent_again(
    end: int | Exception | httpx.Response, raised: type[Exception]
) -> None:
    made, sent = client_of(end)
    with pytest.raises(raised):
        made.jobs.submit("echo", LINES)
    assert len(sent) == 1


def test_retry_after_is_waited_for_up_to_the_deadline(pauses: list[float]) -> None:
    late = refusal(429, retryable=True, retry_after="7", retry_after_ms="6500")
    made, _ = client_of(late, refusal(503, retryable=True, retry_after="2"), 200)
    assert made.jobs.get("job_1").id == "job_1"
    assert 6.5 <= pauses[0] <= 6.75
    assert 2.0 <= pauses[1] <= 2.25
    pauses.clear()
    made, sent = client_of(refusal(429, retryable=True, retry_after="60"), 200)
    with pytest.raises(errors.RateLimitError) as found:
        made.infer("echo", "x", timeout_s=5)
    assert found.value.retry_after_s == 60
    assert (len(sent), pauses) == (1, [])


def test_retries_end_with_their_number_and_grow_until_then(pauses: list[float]) -> None:
    made, sent = client_of(*[502] * 9)
    with pytest.raises(errors.APIStatusError):
        made.jobs.get("job_1")
    assert len(sent) == 6
    for pause, most in zip(pauses, (0.5, 1, 2, 4, 8), strict=True):
        assert 0.75 * most <= pause <= most


def test_what_must_not_run_twice_is_sent_again_if_it_was_not_taken(pauses: list[float]) -> None:
    acts: list[Callable[[Client], Any]] = [
        lambda made: made.request("POST", "/rollouts", json={}),
        lambda made: made.jobs.retry("job_1"),
    ]
    for act in acts:
        made, sent = client_of(refusal(503, retryable=True), 200, httpx.ReadError("reset"), 200)
        assert act(made)["id"] == "job_1"
        with pytest.raises(errors.APIConnectionError):
            act(made)
        assert len(sent) == 3
        assert sent[0].startswith("None ")
    made, _ = client_of(httpx.ReadTimeout("late"))
    with pytest.raises(errors.APITimeoutError, match="did not answer in time"):
        made.request("POST", "/rollouts", json={})


def test_a_redirect_is_an_error_that_says_where_it_leads_and_no_body_is_none() -> None:
    made, _ = client_of(*[httpx.Response(307, headers={"Location": "https://x/jobs"})] * 2)
    with pytest.raises(errors.APIStatusError, match="it leads to https://x/jobs") as found:
        made.jobs.get("job_1")
    assert (found.value.status, found.value.retryable) == (307, False)
    with pytest.raises(errors.APIStatusError, match="it leads to"):
        list(made.lines("/jobs/job_1/results"))
    made, _ = client_of(httpx.Response(204), 200)
    assert made.request("DELETE", "/admin/models/m/routes/acme") is None
    assert made.request("GET", "/x")["id"] == "job_1"


def test_jobs_are_submitted_and_found_by_name_and_labels() -> None:
    api = Recorder({"id": "job_1", "generation": 1, "data": [], "next": None})
    made, labels = answered_by(api), {"team": "search", "stage": "prod"}
    made.jobs.submit("echo", LINES, name="nightly", labels=labels)
    made.map("echo", LINES, name="nightly", labels=labels)
    assert list(made.jobs.list(name="night", label=["team:search", "stage:prod"])) == []
    assert list(made.jobs.list(label="team:search")) == []
    made.jobs.submit("echo", LINES)
    *submitted, night, search, without = [request.url.params for request in api.seen]
    for params in submitted:
        assert (params["name"], json.loads(params["labels"])) == ("nightly", labels)
    assert len(submitted) == 2
    assert (night["name"], night.get_list("label")) == ("night", ["team:search", "stage:prod"])
    assert search.get_list("label") == ["team:search"]
    assert set(without) == {"model"}


def test_calls_have_a_key_a_deadline_and_parameters_and_orders_go_into_the_query() -> None:
    api = Recorder({"output": [1], "usage": {"tokens": 1}})
    more = {"params": {"p": 2}, "class": "bulk"}
    call = answered_by(api).infer("m", {"a": 1}, timeout_s=1.5, **more)
    assert (call.output, call["output"], call.usage.get("tokens")) == ([1], [1], 1)
    [sent] = api.seen
    assert json.loads(sent.content) == {"model": "m", "input": {"a": 1}, "timeout_ms": 1500, **more}
    assert sent.headers["idempotency-key"]
    assert sent.extensions["timeout"]["read"] <= 1.5
    api = Recorder(JOB)
    made = answered_by(api)
    made.jobs.submit("echo", LINES, priority=3, expires_in_s=None, output={"url": "s3://b/"})
    made.request("GET", "jobs?limit=1")  # one may be in the path
    assert dict(api.seen[0].url.params) == {
        "model": "echo", "priority": "3", "expires_in_s": "null", "output": '{"url": "s3://b/"}'
    }  # fmt: skip
    assert str(api.seen[1].url) == "http://x/jobs?limit=1"


def test_every_request_has_the_key_or_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLRACE_API_KEY", raising=False)
    other = {"authorization": "Bearer other"}
    for key, sent in ((None, []), ("mk_x", ["Bearer mk_x"])):
        api = Recorder(JOB)
        made = answered_by(api, key)
        made.jobs.get("job_1")
        made.jobs.create(model="echo", items=["x"])
        made.request("GET", "/x", headers=other)
        found = [request.headers.get_list("authorization") for request in api.seen]
        assert found == [sent, sent, ["Bearer other"]]


def test_nothing_is_changed_in_a_client_that_is_given() -> None:
    api = Recorder(JOB)
    http = httpx.Client(
        transport=httpx.MockTransport(api),
        base_url="http://elsewhere",
        headers={"Authorization": "Basic x"},
    )
    one, other = (Client(f"http://{name}/sub/", f"mk_{name}", http_client=http) for name in "ab")
    one.jobs.get("job_1")
    other.jobs.get("job_1")
    http.get("/mine")
    assert len(list(one.lines("/jobs"))) == 1
    assert [(str(sent.url), sent.headers["authorization"]) for sent in api.seen] == [
        ("http://a/sub/jobs/job_1", "Bearer mk_a"),
        ("http://b/sub/jobs/job_1", "Bearer mk_b"),
        ("http://elsewhere/mine", "Basic x"),
        ("http://a/sub/jobs", "Bearer mk_a"),
    ]


def test_threads_that_share_it_keep_all_their_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """httpcore closes idle ones above a limit, and one that a request was just given with them."""
    usual, many = signature(httpx.Client).parameters["limits"].default, 30
    monkeypatch.setattr(usual, "max_keepalive_connections", 20)
    own = httpx.Limits.__init__.__kwdefaults__
    monkeypatch.setitem(own, "keepalive_expiry", None)  # however long the test stands still
    with meeting(many) as server, Client(server.url) as made, ThreadPoolExecutor(many) as pool:
        for _ in range(2):
            list(pool.map(made.jobs.get, ["job_1"] * many))
        assert len(server.connections) == many


def test_address_and_key_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_URL", "http://elsewhere:1")
    monkeypatch.setenv("MILLRACE_API_KEY", "mk_y")
    api = Recorder(JOB)
    with httpx.Client(transport=httpx.MockTransport(api)) as http:
        Client("http://x\n", "mk_x\r\n", http_client=http).jobs.get("job_1")
        Client(http_client=http).jobs.get("job_1")
    assert [(str(sent.url), sent.headers["authorization"]) for sent in api.seen] == [
        ("http://x/jobs/job_1", "Bearer mk_x"),
        ("http://elsewhere:1/jobs/job_1", "Bearer mk_y"),
    ]


def test_a_key_or_a_header_that_can_not_be_sent_is_refused_and_not_shown() -> None:
    for key in ("mk_secret\nmk_y", "mk_secret\x00", "mk_secr\xe9t"):
        with pytest.raises(errors.InputError) as found:
            Client("http://x", key)
        assert "secr" not in "".join(format_exception(found.value))
    headers = {"Authorization": "Bearer mk_secret\n"}  # not in a line of the traceback
    with breaking([], [], 1) as server:
        made = Client(server.url)
        with pytest.raises(errors.InputError, match="a header can't be sent") as found:
            made.request("GET", "/x", headers=headers)
        made.close()
    assert "mk_secret" not in "".join(format_exception(found.value))


def test_jobs_are_listed_page_by_page_as_they_are_read() -> None:
    asked: list[dict[str, str]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(dict(request.url.params))
        first = 2 * len(asked)
        data = [{"id": f"job_{n}"} for n in (first, first + 1)]
        return httpx.Response(200, json={"data": data, "next": data[-1]["id"]})

    made = answered_by(handle)
    listed = made.jobs.list(state="running", limit=4)
    assert [job.id for job in listed] == [f"job_{n}" for n in range(2, 6)]
    assert asked == [
        {"state": "running", "limit": "4"},
        {"state": "running", "limit": "2", "after": "job_3"},
    ]


def test_an_object_has_its_fields_as_attributes_and_says_which_it_has() -> None:
    made, _ = client_of(200)
    job = made.jobs.get("job_1")
    assert (job.state, job["state"], job.counts) == ("queued", "queued", {})
    with pytest.raises(AttributeError, match="this Job has no 'stat', but id, generation, state"):
        job.stat  # noqa: B018


def problem_of(**fields: Any) -> errors.APIStatusError:
    made = httpx.Response(422, json=fields)
    return errors.APIStatusError.of(made.status_code, made.content, made.headers)


def test_an_error_has_status_code_param_request_and_message() -> None:
    fault = {"loc": ["items", 3, "input"], "message": "must be a text"}
    error = problem_of(
        title="Wrong", detail="1 fault", code="invalid", request_id="req_1", errors=[fault]
    )
    assert (error.status, error.code, error.param) == (422, "invalid", "items.3.input")
    assert (error.request_id, error.message) == ("req_1", "1 fault")
    assert str(error) == "Wrong: 1 fault\n  items.3.input: must be a text"
    assert isinstance(error, errors.UnprocessableEntityError)
    assert not error.retryable
    openai = {"message": "no", "type": "t", "param": "model", "code": "unknown_model"}
    error = problem_of(error=openai)
    assert (error.code, error.param, error.message) == ("unknown_model", "model", "no")


def test_an_error_of_a_proxy_is_one_too() -> None:
    said_twice = {"loc": ["path", "job_id"], "message": "'x' is no id"}
    for (fields, said), case in each([
        ({"errors": ["bad"]}, "refused: \n  bad"),
        ({"errors": "bad"}, "refused: "),
        ({"errors": {"a": "b"}}, "refused: "),
        ({"errors": [None, 5, {}]}, "refused: \n  None\n  5"),
        ({"errors": [{"loc": None, "message": "x"}]}, "refused: \n  x"),
        ({"errors": [{"loc": "a", "message": None}], "error": ["x"]}, "refused: ['x']"),
        ({"detail": {"a": 1}, "errors": [{"detail": "x"}]}, "refused: {'a': 1}"),
        ({"title": 5, "error": {"message": ["x"], "param": 3}}, "5: ['x']"),
        ({"title": "Wrong", "detail": "path.job_id: 'x' is no id", "errors": [said_twice]},
         "Wrong: path.job_id: 'x' is no id"),
    ]):  # fmt: skip
        with case:
            assert str(problem_of(**fields)) == said
    for body in (b"", b"\xff", b"null", b"[" * 100_000):
        assert errors.APIStatusError.of(502, body, {}).status == 502
    assert errors.APIStatusError.of(500, b"<html>", {}).message == "<html>"


RESULT = Result(seq=3, outcome="failed", error={"code": "c", "message": "m"})


@pytest.mark.parametrize(
    "error",
    [
        errors.APIConnectionError("gone", refused=True),
        errors.APITimeoutError("late"),
        problem_of(code="c", errors=[{"loc": ["a"], "message": "m"}], request_id="req_1"),
        errors.InputError("bad"),
        errors.ItemError(RESULT),
        errors.JobFailed({"id": "job_1", "error": {"message": "m"}}),
        errors.StreamError({"code": "c"}),
        errors.WaitTimeout("job_1", 5.0),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_go_to_another_process_whole(error: errors.MillraceError) -> None:
    error.add_note("a note")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert (str(again), vars(again)) == (str(error), vars(error))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca")


@pytest.fixture
def port(authority: Authority, tmp_path: Path) -> Iterator[int]:
    """The port of a server that takes no request after the handshake."""
    with tls_proxy(str(tmp_path / "nobody"), authority.pair("server")) as found:
        yield found


def error_of(url: str, verify: ssl.SSLContext | bool = True) -> str:
    with (
        Client(url, verify=verify, max_retries=0) as made,
        pytest.raises(APIConnectionError) as found,
    ):
        made.jobs.get("job_1")
    return str(found.value)


def test_a_certificate_of_a_ca_of_the_system_or_your_own_is_taken_and_no_other(
    port: int, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scheme in ("https", "HTTPS", "Https"):
        assert "CERTIFICATE_VERIFY_FAILED" in error_of(f"{scheme}://127.0.0.1:{port}")
    own = tls_context(authority.cert)
    assert "CERTIFICATE_VERIFY_FAILED" not in error_of(f"https://127.0.0.1:{port}", own)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))  # where OpenSSL has them
    assert "CERTIFICATE_VERIFY_FAILED" not in error_of(f"https://127.0.0.1:{port}")


def test_only_whoever_says_so_goes_without() -> None:
    assert verification("HTTPS://x", False) is False
    found = verification("HTTPS://x", True)
    assert isinstance(found, ssl.SSLContext)
    assert (found.verify_mode, found.check_hostname) == (ssl.CERT_REQUIRED, True)
