"""`millrace models route`: what it sends, and what it says."""

import pytest

from tests.support.command_line import run_millrace
from tests.unit.ops.cli.conftest import Client

ROUTE = {
    "tenant": "*", "sticky": "user",
    "shadow": {"version": "3", "percent": 10.0, "copies": {"1": {"equal": 1200, "shed": 3}}},
    "splits": [{"version": "1", "percent": 95.0}, {"version": "2", "percent": 5.0}],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _routes(client: Client) -> None:
    for name in ("a%2Fb", "m"):
        client.answers[f"/admin/models/{name}"] = [{"routes": [ROUTE], "data": []}]


def run(*arguments: str, status: int = 0) -> str:
    return run_millrace("models", "route", *arguments, status=status).output


def test_shares_are_sent_in_their_order_and_shown(client: Client) -> None:
    said = run("a/b", "1=95", "2=5", "--sticky", "user", "--shadow", "3=10")
    [(method, path, body)] = client.sent
    assert (method, path) == ("PUT", "/admin/models/a%2Fb/routes/%2A")
    assert body == {
        "splits": ROUTE["splits"], "sticky": "user", "shadow": {"version": "3", "percent": 10.0},
    }  # fmt: skip
    assert said == (
        "all tenants  1=95 2=5  sticky by user  shadow 3=10\n"
        "    copies for 3 of calls that 1 answered: 1,200 equal, 3 shed\n"
    )


def test_without_right_shares_it_changes_nothing(client: Client) -> None:
    assert "1=95" in run("m")
    assert client.sent == []
    assert "goes with the shares" in run("m", "--shadow", "2=5", status=2)
    assert "'2' is no VERSION=PERCENT" in run("m", "1=95", "2", status=2)
    assert client.sent == []


def test_a_route_is_removed(client: Client) -> None:
    assert run("m", "--tenant", "acme", "--remove") == "removed\n"
    assert client.sent == [("DELETE", "/admin/models/m/routes/acme", None)]
