"""The models file while processes run."""

import os
from pathlib import Path

import pytest

from jobs.models.watcher import ModelsFile
from jobs.settings import SettingsError

ENTRY = '[[model]]\nname = "x"\nversion = "{}"\nengine = "echo"\ntarget_ms = {}\n'


def write(path: Path, text: str) -> None:
    """As deployments do: all of it at once."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "models.toml"
    write(made, ENTRY.format(1, 50))
    return made


def keys(file: ModelsFile) -> list[str]:
    return [model.key for model in file.models]


def test_a_file_that_changed_is_read_once(path: Path) -> None:
    file = ModelsFile(path)
    assert not file.poll()
    write(path, ENTRY.format(1, 50) + ENTRY.format(2, 50))
    assert file.poll()
    assert keys(file) == ["x@1", "x@2"]
    assert not file.poll()


@pytest.mark.parametrize("text", ["not TOML", "", ENTRY.format("a@b", 50)])
def test_a_broken_file_changes_nothing(
    path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = ModelsFile(path)
    write(path, text)
    assert not file.poll()
    assert keys(file) == ["x@1"]
    assert "stays in force" in caplog.text
    write(path, ENTRY.format(2, 50))
    assert file.poll()


def test_a_file_that_is_gone_changes_nothing(path: Path) -> None:
    file = ModelsFile(path)
    path.unlink()
    assert not file.poll()
    assert keys(file) == ["x@1"]


def test_an_entry_that_changed_under_its_version_is_refused(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = ModelsFile(path)
    write(path, ENTRY.format(1, 75))
    assert file.poll()
    assert file.models.resolve("x").target_ms == 50
    assert "x@1 has changed: give it another version" in caplog.text


def test_an_old_entry_keeps_the_fallback_that_it_names(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(path, ENTRY.format(1, 50) + ENTRY.format(2, 50) + 'degrade.fallback = "x@1"\n')
    file = ModelsFile(path)
    write(path, ENTRY.format(3, 50) + ENTRY.format(2, 50) + 'degrade.fallback = "x@3"\n')
    assert not file.poll()
    assert keys(file) == ["x@1", "x@2"]
    assert "x@2: degrade.fallback 'x@1' is not declared here" in caplog.text


def test_a_file_that_is_broken_from_the_start_is_said_so(path: Path) -> None:
    write(path, "")
    with pytest.raises(SettingsError):
        ModelsFile(path)


def test_the_samples_never_change() -> None:
    assert not ModelsFile(None).poll()


def test_a_price_may_change_under_its_version(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = ModelsFile(path)
    [model] = file.models
    write(path, ENTRY.format(1, 50) + "price = { per_item = 2 }\n")
    assert file.poll()
    assert file.price(model).per_item == 2
    assert caplog.text == ""
    write(path, ENTRY.format(1, 70) + "price = { per_item = 3 }\n")
    assert file.poll()
    [changed] = file.models
    assert (changed.target_ms, file.price(model).per_item) == (50, 3)


def test_what_is_declared_no_more_keeps_its_last_price(path: Path) -> None:
    write(path, ENTRY.format(1, 50) + "price = { per_item = 2 }\n")
    file = ModelsFile(path)
    [model] = file.models
    write(path, ENTRY.format(2, 50))
    assert file.poll()
    assert file.price(model).per_item == 2
