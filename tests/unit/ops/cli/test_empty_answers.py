"""Lists that are empty say so, and what to do next; errors of keys name the variable."""

import json

import pytest

from tests.support.command_line import run_millrace
from tests.support.servers.receiver import Reply, receiving

NOTHING = {
    "data": [], "next": None, "events": [], "total": {}, "url": None, "deliveries": [],
}  # fmt: skip


def asked(*arguments: str, status: int = 0, reply: Reply | None = None) -> tuple[str, str]:
    """(standard output, standard error) of a command, asked of an api with this answer."""
    with receiving() as api:
        api.reply = lambda request: reply or Reply(200, body=json.dumps(NOTHING).encode())
        url = f"http://127.0.0.1:{api.port}"
        done = run_millrace(*arguments, status=status, MILLRACE_URL=url)
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("command", "next_step"),
    [
        ("jobs", "millrace submit FILE --model NAME"),
        ("jobs --state running", "`millrace jobs` lists all"),
        ("calls", "millrace infer"),
        ("calls --outcome late", "`millrace calls` lists all"),
        ("models", "millrace init"),
        ("workers", "`millrace up`"),
        ("webhooks job_1", "--webhook URL"),
        ("usage", "--from and --to"),
        ("usage --from 2020-01-01", "no usage in that time"),
        ("limits acme", "millrace limits acme --requests-per-s 100"),
        ("rollout status", "millrace rollout start"),
        ("scale status", "millrace worker"),
        ("scale history gpu", "millrace scale set gpu"),
    ],
)
def test_an_empty_answer_says_what_to_do_next(command: str, next_step: str) -> None:
    printed, said = asked(*command.split())
    assert printed == ""  # what is piped on stays empty
    assert said.startswith(("no ", "nothing ", "job_1 has no ", "acme has no "))
    assert next_step in said
    printed, said = asked(*command.split(), "--json")
    assert json.loads(printed) in (NOTHING, [])
    assert said == ""


def test_a_missing_key_is_named_with_the_command_that_makes_one() -> None:
    problem = {"title": "No valid credential", "detail": "the request has no credential"}
    for status in (401, 403):
        reply = Reply(status, body=json.dumps(problem).encode())
        _, said = asked("limits", "acme", status=1, reply=reply)
        assert "the request has no credential" in said
        assert "MILLRACE_API_KEY" in said
        assert "`millrace keys create --tenant NAME --role admin`" in said
