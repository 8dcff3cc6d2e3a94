"""Every recipe of the cookbook, part of the first hour, and example of the client does what its
page says, run as a reader would: its files saved, its entries in the models file, its commands in a
shell, their output as it is shown."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from ops.bench.harness.models_files import models_file, sample
from ops.processes.ports import free_port
from ops.supervisor.platform import Platform
from tests.support.pages import MINILM, ROOT, Recipe, as_shown, lay_out, run, sections
from tests.support.platforms import LIGHT, SAMPLES, Platforms, spec

pytestmark = pytest.mark.nightly
DOCS = ROOT / "ops" / "docs"
PAGES = [DOCS / "how-to/cookbook.md", DOCS / "tutorial/first_hour.md", DOCS / "reference/client.md"]
BUCKET = "texts"
MODELS = LIGHT + MINILM + models_file(sample("simple"))
_PORT = re.compile(r"\b90\d\d\b")


def recipes() -> dict[str, Recipe]:
    ports: dict[str, str] = {}

    def free(port: re.Match[str]) -> str:  # those of the page may be taken here
        return ports.setdefault(port[0], str(free_port()))

    found = [
        recipe
        for page in PAGES
        for recipe in sections(_PORT.sub(free, page.read_text()))
        if page == PAGES[0] or recipe.blocks
    ]
    return {recipe.title: recipe for recipe in found}


RECIPES = recipes()


@pytest.fixture(scope="module")
def environ() -> Iterator[dict[str, str]]:
    """An S3, and who may use it: for the platform and for the recipes."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    given = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "recipes",
        "AWS_SECRET_ACCESS_KEY": "recipes",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        client = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield given
    server.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reader's folder: the files of all recipes, and the models file."""
    found = tmp_path_factory.mktemp("cookbook")
    lay_out(found, RECIPES.values(), MODELS)
    return found


@pytest.fixture(scope="module")
def platform(folder: Path, environ: dict[str, str], platforms: Platforms) -> Iterator[Platform]:
    wanted: dict[str, Any] = {
        "models": folder / "models.toml",
        "webhook_allow": "127.0.0.1",
        "s3_allow": BUCKET,
        "s3_endpoint": environ["AWS_ENDPOINT_URL"],
    }
    with platforms.running(spec(SAMPLES), home=folder / "home", **wanted) as started:
        yield started


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_shows_what_comes_of_it_and_does_what_it_says(
    title: str, folder: Path, platform: Platform, environ: dict[str, str]
) -> None:
    recipe = RECIPES[title]
    assert recipe.commands
    assert recipe.shown
    assert {language for language, _ in recipe.blocks} <= {"bash", "python", "toml", "text"}
    unnamed = [text for kind, text in recipe.blocks if kind in ("python", "toml")]
    assert len(unnamed) == len(recipe.files)
    printed = run(recipe, folder, {**environ, "MILLRACE_URL": platform.url})
    assert as_shown(recipe.shown).fullmatch(printed), printed
