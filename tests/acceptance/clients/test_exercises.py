"""Every exercise is solved by the commands that stand there, and they print what stands there. An
exercise may need those before it: the page is read from its top."""

import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import pytest

from millrace import Client
from ops.processes.ports import free_port
from tests.support.cases import each
from tests.support.keys import make_key_at
from tests.support.pages import MINILM, ROOT, as_shown, lay_out, recipe, run, sections
from tests.support.platforms import Platforms, close_the_door, spec, supervised
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly
PAGE = ROOT / "ops" / "docs" / "how-to" / "exercises.md"
TEXT = PAGE.read_text().replace("9003", str(free_port()))  # that of the page may be taken here
EXERCISES = {one.title: one for one in sections(TEXT) if one.title[0].isdigit()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reader's folder: the files of the page, and the models file."""
    found = tmp_path_factory.mktemp("exercises")
    lay_out(found, [recipe("files", TEXT)], MINILM)
    return found


@pytest.fixture(scope="module")
def environ(folder: Path, platforms: Platforms) -> Iterator[dict[str, str]]:
    """A platform with two workers that have all models, and the keys that the page makes."""
    wanted = {"home": folder / "home", "models": folder / "models.toml"}
    with (
        platforms.running(spec("", workers=2, webhook_allow="127.0.0.1"), **wanted) as platform,
        supervised(platform),
    ):
        url = platform.settings.database_url
        admin, acme = make_key_at(url, "ops", role="admin")[0], make_key_at(url, "acme")[0]
        close_the_door(platform)
        with Client(platform.url, admin) as client:
            eventually(lambda: _ready(client) == {"minilm": 2, "stars": 2, "chatter": 2})
        yield {
            "MILLRACE_URL": platform.url,
            "MILLRACE_HOME": str(folder / "home"),
            "MILLRACE_API_KEY": admin,
            "ACME": acme,
        }


def _ready(client: Client) -> dict[str, int]:
    workers = client.get("/workers")["data"]
    names = [one["model"].partition("@")[0] for worker in workers for one in worker["models"]
             if one["state"] == "ready"]  # fmt: skip
    return {name: names.count(name) for name in names}


@pytest.mark.timeout(1200)
def test_each_has_a_solution_and_what_is_seen(folder: Path, environ: dict[str, str]) -> None:
    assert [int(re.match(r"\d+", title)[0]) for title in EXERCISES] == list(range(1, 21))
    for exercise, case in each(EXERCISES.values(), name=attrgetter("title")):
        with case:
            assert exercise.commands
            assert exercise.shown
            kinds = [language for language, _ in exercise.blocks]
            assert {*kinds} <= {"bash", "python", "text"}
            assert kinds.count("python") == len(exercise.files)
            printed = run(exercise, folder, environ)
            assert as_shown(exercise.shown).fullmatch(printed), printed
