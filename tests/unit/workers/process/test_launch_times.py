"""Files of launch times."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.models.model import Limits, Model
from workers.process.launch_times import LaunchTimes
from workers.scheduler.cost import LaunchSize

MODEL = Model("m", "1", "echo")
TIMES = [(LaunchSize(1, 5.0, 25.0, 2), 0.25), (LaunchSize(2, 10.0, 50.0, 2), 0.5)]


def test_times_are_read_as_written_but_not_of_engines_that_may_compile_for_each_size(
    tmp_path: Path,
) -> None:
    LaunchTimes(tmp_path, "").write(MODEL, TIMES)
    assert LaunchTimes(tmp_path, "").read(MODEL) == TIMES
    [folder] = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    model = replace(MODEL, engine="torch")
    LaunchTimes(tmp_path, "").write(model, TIMES)
    assert LaunchTimes(tmp_path, "").read(model) == []


@pytest.mark.parametrize(
    ("model", "device", "found"),
    [
        (replace(MODEL, version="2"), "", []),
        (replace(MODEL, options={"a": 1}), "", []),
        (replace(MODEL, limits=Limits(max_batch=7)), "", []),
        (MODEL, "cuda:1", []),
        (replace(MODEL, price=replace(MODEL.price, per_item=1)), "", TIMES),
    ],
)
def test_another_model_or_device_has_its_own_but_not_another_price(
    tmp_path: Path, model: Model, device: str, found: list[Any]
) -> None:
    LaunchTimes(tmp_path, "").write(MODEL, TIMES)
    assert LaunchTimes(tmp_path, device).read(model) == found


def test_without_a_home_or_with_a_broken_file_the_model_is_measured(tmp_path: Path) -> None:
    elsewhere = LaunchTimes(tmp_path / "missing", "")
    elsewhere.write(MODEL, TIMES)
    assert elsewhere.read(MODEL) == []
    here = LaunchTimes(tmp_path, "")
    here.write(MODEL, TIMES)
    [file] = (tmp_path / "launch-times").iterdir()
    for broken in ("", "[[1]]", "{}", "[[[1, 2], 3]]", '["ab"]'):
        file.write_text(broken)
        assert here.read(MODEL) == []


def test_a_write_that_fails_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    times = LaunchTimes(tmp_path, "")
    times.write(MODEL, TIMES)
    [file] = (tmp_path / "launch-times").iterdir()
    file.unlink()
    file.mkdir()  # nothing can take its place: the write fails at its end
    times.write(MODEL, TIMES)
    assert "can't be written" in caplog.text
    assert list(file.parent.iterdir()) == [file]
    file.rmdir()
    times.write(MODEL, TIMES)
    assert times.read(MODEL) == TIMES
