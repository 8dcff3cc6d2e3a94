"""The models file is taken up as it changes, and a wrong one is not."""

import logging
import os
from pathlib import Path

import pytest

from api.serving import Serving
from jobs.registry import SAMPLES
from jobs.settings import SettingsError

MODEL = '[[model]]\nname = "a"\nversion = "{}"\nengine = "echo"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "models.toml"
    path.write_text(MODEL.format(1))
    return path


def replace(file: Path, text: str) -> None:
    """As an editor or a deployment does: another file takes its place."""
    new = file.with_suffix(".new")
    new.write_text(text)
    os.replace(new, file)


def test_a_changed_file_is_served(file: Path) -> None:
    serving = Serving(file)
    assert serving.models.resolve("a").key == "a@1"
    replace(file, MODEL.format(1) + MODEL.format(2))
    serving.refresh()
    assert serving.models.resolve("a").key == "a@2"


def test_what_is_in_use_stays_as_it_was(file: Path) -> None:
    serving = Serving(file)
    before = serving.models
    replace(file, MODEL.format(2))
    serving.refresh()
    assert [model.key for model in before] == ["a@1"]


@pytest.mark.parametrize("text", ["[[model]", MODEL.format("a@b"), None])
def test_a_wrong_file_changes_nothing_and_is_logged_once(
    file: Path, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    serving = Serving(file)
    if text is None:
        file.unlink()
    else:
        replace(file, text)
    with caplog.at_level(logging.ERROR):
        serving.refresh()
        serving.refresh()
    assert serving.models.resolve("a").key == "a@1"
    assert len(caplog.records) == 1
    replace(file, MODEL.format(3))
    serving.refresh()
    assert serving.models.resolve("a").key == "a@3"


def test_a_file_that_is_wrong_from_the_beginning_is_refused(file: Path) -> None:
    file.write_text("[[model]")
    with pytest.raises(SettingsError):
        Serving(file)


def test_the_samples_need_no_file() -> None:
    serving = Serving(None)
    serving.refresh()
    assert serving.models is SAMPLES
