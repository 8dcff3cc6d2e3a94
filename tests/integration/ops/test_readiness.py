"""The wait of `millrace up` for its api: as long as models may load, and no longer."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.responses import JSONResponse

from jobs.settings import Settings
from ops.supervisor import readiness
from ops.supervisor.readiness import NotReady, await_ready
from tests.support.servers.api_server import serving
from tests.support.wait import PATIENCE_S

MODELS = """
[[model]]
name = "slow"
version = "1"
engine = "echo"
limits = { max_load_s = 60 }
"""
LOADING = {"code": "no_worker", "detail": "no worker is ready for slow@1"}
AWAY = {"code": "unavailable", "detail": "the database can't be reached"}


@contextmanager
def api(tmp_path: Path, *problems: dict[str, str]) -> Iterator[Settings]:
    """Settings of an api that has these problems, one after the other, the last for good; {}: it is
    ready."""
    (tmp_path / "models.toml").write_text(MODELS)
    left = list(problems)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        problem = left.pop(0) if len(left) > 1 else left[0]
        await JSONResponse(problem, 503 if problem else 200)(scope, receive, send)

    with serving(app, lifespan="off", timeout_keep_alive=600) as port:
        yield Settings(port=port, models=str(tmp_path / "models.toml"))


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_WITHIN_S", 0.0)
    monkeypatch.setattr(readiness, "_ANSWER_S", PATIENCE_S)


def test_a_model_that_loads_is_waited_for(tmp_path: Path) -> None:
    polls = []
    with api(tmp_path, LOADING, LOADING, LOADING, {}) as settings:
        await_ready(settings, lambda: polls.append(1) or True)
    assert len(polls) == 4


def test_what_is_not_ready_in_time_is_named(tmp_path: Path) -> None:
    with (
        api(tmp_path, AWAY) as settings,
        pytest.raises(NotReady, match="within 0 s: the database can't be reached"),
    ):
        await_ready(settings, lambda: True)


def test_a_stop_ends_the_wait(tmp_path: Path) -> None:
    polls = iter([True, True, False])
    with api(tmp_path, LOADING) as settings:
        await_ready(settings, lambda: next(polls))
    assert not list(polls)
