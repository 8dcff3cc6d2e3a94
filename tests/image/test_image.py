"""The image, built and run: by docker where a daemon answers, else step by step. It takes minutes
and a network: `make image` runs it, and so does CI."""

import os
import re
import tomllib

import pytest

from tests.image.builders import ROOT, Image, built

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif("MILLRACE_IMAGE" not in os.environ, reason="`make image` runs it"),
]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return built(tmp_path_factory.mktemp("image"))


def test_it_has_the_version_of_the_sources(image: Image) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert image.start("--version").stdout.split()[-1] == version
    assert image.labels()["org.opencontainers.image.version"] == version


def test_without_words_it_shows_the_commands(image: Image) -> None:
    shown = image.start()
    assert shown.returncode == 0
    assert re.search(r"^ +migrate ", shown.stdout, re.MULTILINE)


def test_it_runs_as_nobody_who_may_write(image: Image) -> None:
    assert image.execute("id", "-u").stdout.strip() == "10001"
    assert "Read-only file system" in image.execute("touch", "/var/lib/millrace/file").stderr


def test_it_has_neither_compiler_nor_sources_nor_tests(image: Image) -> None:
    found = image.execute(
        "sh", "-c", "ls -d /src /app /opt/venv/bin/pytest; command -v cc gcc make"
    )
    assert found.stdout == ""


def test_a_model_on_torch_loads_and_gives_its_known_answer(image: Image) -> None:
    checked = image.start("model", "check", "minilm")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_extra_of_the_file_is_there(image: Image) -> None:
    code = "import gguf, kubernetes, llguidance, pyarrow, transformers, migrations.run"
    done = image.execute("python", "-c", code)
    assert done.returncode == 0, done.stderr
