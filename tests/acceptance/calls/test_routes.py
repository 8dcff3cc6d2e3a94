"""Routes on a whole platform: shares of sticky users, pinned versions, shadows."""

from collections import Counter
from typing import Any

import httpx

from millrace import Client
from tests.support.models.entries import model
from tests.support.platforms import OPEN
from tests.support.wait import eventually

PLATFORM = OPEN
MODELS = model("routed", "echo") + model("routed", "echo", version="2")
ROUTE = "/admin/models/routed/routes/*"
USERS = [f"user-{n}" for n in range(200)]


def call(http: httpx.Client, user: str = "", model: str = "routed") -> str:
    headers = {"X-Millrace-User": user} if user else {}
    answer = http.post("/infer", json={"model": model, "input": "hi"}, headers=headers)
    assert answer.status_code == 200, answer.text
    version: str = answer.json()["version"]
    assert answer.headers["X-Millrace-Model"] == f"routed@{version}"
    return version


def put(http: httpx.Client, first: float, second: float, **more: Any) -> None:
    shares = {"1": first, "2": second}
    splits = [{"version": version, "percent": percent} for version, percent in shares.items()]
    answer = http.put(ROUTE, json={"splits": splits, **more})
    assert answer.status_code == 200, answer.text


def test_a_ramp_takes_no_user_back_and_a_pinned_version_beats_it(http: httpx.Client) -> None:
    eventually(lambda: call(http) == "2")  # the newest
    put(http, 100, 0, sticky="user")
    eventually(lambda: {call(http) for _ in range(5)} == {"1"})
    put(http, 70, 30, sticky="user")
    eventually(lambda: len({call(http, user) for user in USERS[:40]}) == 2)
    moved = {user for user in USERS if call(http, user) == "2"}
    assert 0.15 < len(moved) / len(USERS) < 0.45
    put(http, 40, 60, sticky="user")
    eventually(lambda: sum(call(http, user) == "2" for user in USERS) > len(moved))
    assert {call(http, user) for user in moved} == {"2"}
    assert {call(http, user, "routed@1") for user in USERS[:20]} == {"1"}
    with Client(str(http.base_url)) as client:
        assert client.request("DELETE", ROUTE) is None
    eventually(lambda: Counter(call(http, user) for user in USERS[:20]) == {"2": 20})


def test_a_shadows_answers_are_compared_and_dropped(http: httpx.Client) -> None:
    put(http, 100, 0, shadow={"version": "2", "percent": 100})
    eventually(lambda: call(http) == "1")

    def compared() -> bool:
        assert call(http) == "1"
        return (
            'millrace_shadow_calls_total{model="routed@1",outcome="equal",shadow="routed@2"}'
            in (http.get("/metrics").text)
        )

    eventually(compared)
    assert http.delete(ROUTE).status_code == 204


def test_a_faulty_route_is_refused(http: httpx.Client) -> None:
    splits = [{"version": "1", "percent": 60}, {"version": "9", "percent": 50}]
    answer = http.put(ROUTE, json={"splits": splits})
    assert answer.status_code == 422
    assert "make 110" in answer.text
    assert "no active version '9'" in answer.text
