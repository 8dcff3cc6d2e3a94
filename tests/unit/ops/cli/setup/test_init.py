"""`millrace init`: a folder to begin with, whose settings every command reads."""

from pathlib import Path

import pytest

from jobs import settings
from jobs.models import models_file
from jobs.models.builtin_models import SAMPLES
from ops.cli.setup import dotenv
from tests.support.command_line import run_millrace


def test_the_models_file_has_the_samples_and_files_are_overwritten_only_by_force(
    tmp_path: Path,
) -> None:
    run_millrace("init", str(tmp_path / "new"))
    declared = models_file.read(tmp_path / "new" / "models.toml")
    for written, sample in zip(declared, SAMPLES, strict=True):
        for name in ("key", "limits", "engine", "target_ms", "on_demand", "target_ttft_ms"):
            assert getattr(written, name) == getattr(sample, name)
        assert written.options.keys() == sample.options.keys()
    (tmp_path / ".env").write_text("MINE=1\n")
    refused = run_millrace("init", str(tmp_path), status=1)
    assert "--force overwrites" in refused.output
    assert not (tmp_path / "models.toml").exists()
    assert (tmp_path / ".env").read_text() == "MINE=1\n"
    forced = run_millrace("init", str(tmp_path), "--force")
    assert "millrace up" in forced.output
    assert "MILLRACE_MODELS=models.toml" in (tmp_path / ".env").read_text()


def test_the_environment_beats_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_millrace("init", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    environ = {"MILLRACE_HOME": "/elsewhere"}
    dotenv.load(tmp_path, environ)
    found = settings.load(environ)
    assert found.models == Path("models.toml")
    assert found.home == Path("/elsewhere")


def test_our_lines_are_read_as_shells_do_but_not_those_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def loaded(line: str) -> dict[str, str]:
        (tmp_path / ".env").write_text(f"{line}\n")
        environ: dict[str, str] = {}
        dotenv.load(tmp_path, environ)
        return environ

    read = {
        "MILLRACE_PORT=8001": "8001",
        "export MILLRACE_PORT = 8001  # of the api": "8001",
        "MILLRACE_PORT='80 #01'": "80 #01",
        "MILLRACE_PORT=# none": "",
    }
    for line, value in read.items():
        assert loaded(line) == {"MILLRACE_PORT": value}
    for line in ("# MILLRACE_PORT=8001", "PORT=8001", "LD_PRELOAD=x.so"):
        assert loaded(line) == {}
    if uid := (tmp_path / ".env").stat().st_uid:
        monkeypatch.setattr("os.geteuid", lambda: uid + 1)
        assert loaded("MILLRACE_URL=http://127.0.0.1:1") == {}
        assert "belongs to another user" in capsys.readouterr().err
