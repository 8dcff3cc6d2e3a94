"""`millrace models route`: what it sends, and what it says."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

from ops.cli.commands import common
from ops.cli.commands.models.routes import route

ROUTE = {
    "tenant": "*", "sticky": "user",
    "shadow": {"version": "3", "percent": 10.0, "copies": {"1": {"equal": 1200, "shed": 3}}},
    "splits": [{"version": "1", "percent": 95.0}, {"version": "2", "percent": 5.0}],
}  # fmt: skip


class Recorder:
    """Takes the place of a client."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Any]] = []

    def close(self) -> None: ...

    def get(self, path: str) -> Any:
        return {"routes": [ROUTE], "data": []}

    def request(self, method: str, path: str, json: Any = None) -> None:
        self.sent.append((method, path, json))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(common, "_connect", lambda url, key: recorder)
    return recorder


def run(*arguments: str) -> str:
    done = CliRunner().invoke(route, arguments)
    assert done.exit_code == 0 or isinstance(done.exception, SystemExit | click.UsageError)
    return done.output


def test_shares_are_sent_in_their_order_and_shown(client: Recorder) -> None:
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


def test_without_right_shares_it_changes_nothing(client: Recorder) -> None:
    assert "1=95" in run("m")
    assert client.sent == []
    assert "goes with the shares" in run("m", "--shadow", "2=5")
    assert "'2' is no VERSION=PERCENT" in run("m", "1=95", "2")
    assert client.sent == []


def test_a_route_is_removed(client: Recorder) -> None:
    assert run("m", "--tenant", "acme", "--remove") == "removed\n"
    assert client.sent == [("DELETE", "/admin/models/m/routes/acme", None)]
