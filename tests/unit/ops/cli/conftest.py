"""A client that takes the place of one of the platform."""

from typing import Any

import pytest

from ops.cli.commands import common


class Client:
    """Answers each path with what the test gave for it, in turn."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.sent: list[tuple[str, str, Any]] = []
        self.answers: dict[str, list[Any]] = {}

    def close(self) -> None: ...

    def get(self, path: str, **query: Any) -> Any:
        self.asked.append((path, query))
        answers = self.answers[path]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def request(self, method: str, path: str, json: Any = None) -> None:
        self.sent.append((method, path, json))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    monkeypatch.setattr(common, "_connect", lambda url, key: made)
    return made
