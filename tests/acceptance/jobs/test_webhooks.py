"""A job's end arrives where its webhook says, as users see it: over HTTP and the command line."""

import json
import threading
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from standardwebhooks import Webhook

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.children import kill, until
from tests.support.command_line import run_millrace
from tests.support.platforms import OPEN, transaction
from tests.support.servers.receiver import Receiver, Reply
from tests.support.wait import PATIENCE_S, eventually, gone

PLATFORM = OPEN


@pytest.fixture(scope="module")
def secret(http: httpx.Client) -> str:
    """Signing secret, which is shown once."""
    shown = http.get("/webhooks/secret").json()
    assert http.get("/webhooks/secret").json() == shown | {"secret": None}
    return str(shown["secret"])


def submit(http: httpx.Client, webhook: Any) -> httpx.Response:
    return http.post("/jobs", json={"model": "echo", "items": ["x"], "webhook": webhook})


def delivered(http: httpx.Client, job: str) -> dict[str, Any]:
    """The latest delivery, once it is."""

    def look() -> Any:
        latest = http.get(f"/jobs/{job}/webhooks").json()["data"][:1]
        return next((one for one in latest if one["state"] == "delivered"), None)

    found: dict[str, Any] = eventually(look)
    return found


def test_a_job_tells_its_end_in_its_own_words(
    client: Client, http: httpx.Client, receiver: Receiver, secret: str
) -> None:
    line = b'"x"\n'
    jobs = [
        submit(http, {"url": receiver.url}).json()["id"],
        client.jobs.submit("echo", [line], webhook=json.dumps({"url": receiver.url}))["id"],
    ]
    for job in jobs:
        delivery = delivered(http, job)
        [request] = [found for found in receiver.received if found.id == delivery["id"]]
        message = Webhook(secret).verify(request.body, request.headers)
        assert message["type"] == delivery["type"] == "job.completed"
        assert message["data"] == client.jobs.get(job)
        assert delivery["next_try_at"] is None


def test_a_redelivery_by_command_has_the_same_id(
    platform: Platform, http: httpx.Client, receiver: Receiver
) -> None:
    job = submit(http, {"url": receiver.url}).json()["id"]
    delivery = delivered(http, job)
    assert delivery["id"] in command(platform, "webhooks", job)
    assert "pending" in command(platform, "redeliver", job)
    eventually(lambda: len(receiver.received) == 2)
    assert delivered(http, job)["id"] == delivery["id"]
    assert {request.id for request in receiver.received} == {delivery["id"]}


def test_rotating_by_command_shows_the_new_secret_once(platform: Platform, secret: str) -> None:
    rotated = command(platform, "webhook-secret", "--rotate").strip()
    assert rotated.startswith("whsec_")
    assert rotated != secret
    assert rotated not in command(platform, "webhook-secret")


def command(platform: Platform, *arguments: str) -> str:
    return run_millrace(*arguments, "--url", platform.url).stdout


def test_a_job_without_webhook_has_nothing_to_send_again(http: httpx.Client) -> None:
    job = http.post("/jobs", json={"model": "echo", "items": ["x"]}).json()["id"]
    assert http.get(f"/jobs/{job}/webhooks").json() == {"data": []}
    assert http.post(f"/jobs/{job}/webhooks/redeliver").status_code == 409


@pytest.mark.parametrize(
    ("webhook", "loc"),
    [
        ({"url": "http://example.com/"}, ["webhook", "url"]),
        ({"url": "https://10.0.0.1/"}, ["webhook", "url"]),
        ({"url": "https://u:p@example.com/"}, ["webhook", "url"]),
        ({"url": 7}, ["webhook", "url"]),
        ({"url": "https://example.com/", "secret": "x"}, ["webhook", "secret"]),
        ({}, ["webhook", "url"]),
        ("https://example.com/", ["webhook"]),
    ],
)
def test_a_webhook_that_can_not_be_is_refused_at_once(
    http: httpx.Client, webhook: object, loc: list[str]
) -> None:
    query = {"model": "echo", "webhook": json.dumps(webhook)}
    lines = {"content": b'"x"\n', "headers": {"Content-Type": "application/x-ndjson"}}
    for answer in (submit(http, webhook), http.post("/jobs", params=query, **lines)):
        assert answer.status_code == 422
        assert [fault["loc"] for fault in answer.json()["errors"]] == [loc]


def test_a_keeper_killed_while_it_sends_sends_again_under_the_same_id(
    platform: Platform, http: httpx.Client, receiver: Receiver
) -> None:
    answering = threading.Event()
    receiver.reply = lambda _: Reply(204) if answering.wait(PATIENCE_S) else Reply(500)
    job = submit(http, {"url": receiver.url}).json()["id"]
    eventually(lambda: receiver.received)
    killed = kill(platform, "keeper")
    eventually(lambda: gone(killed))
    answering.set()
    # As if the lease of the dead one had lapsed: it is a minute.
    with transaction(platform) as tx:
        tx.execute(text("UPDATE webhook_deliveries SET due_at = now() WHERE state = 'pending'"))
    until(platform, lambda: len(receiver.received) == 2)
    assert delivered(http, job)["tries"] == 2
    assert len({request.id for request in receiver.received}) == 1
