"""Options of the engine `server`."""

from pathlib import Path
from typing import Any

import pytest

from jobs.models import models_file
from jobs.models.engines.server_options import ServerOptions
from jobs.settings import SettingsError
from tests.support.cases import each

FULL = {"server": '"vllm"', "version": '"0.33.0"', "path": '"llama"'}


def read(folder: Path, **options: str) -> Any:
    table = "\n".join(f"{name} = {value}" for name, value in options.items())
    (folder / "models.toml").write_text(
        f'[[model]]\nname = "m"\nversion = "1"\nengine = "server"\n[model.options]\n{table}'
    )
    [model] = models_file.read(folder / "models.toml")
    return model


def test_paths_begin_in_the_folder_of_the_file_and_bare_programs_in_path(tmp_path: Path) -> None:
    model = read(tmp_path, **FULL, program='"venvs/vllm"')
    assert model.spec.generates
    assert model.options["path"] == str(tmp_path / "llama")
    assert model.options["program"] == str(tmp_path / "venvs/vllm")
    assert read(tmp_path, **FULL, program='"vllm"').options["program"] == "vllm"


def test_faults_of_an_entry_are_reported(tmp_path: Path) -> None:
    cases = [
        ({}, "one of server, command must be set"),
        ({"server": '"vllm"'}, "server goes with version, which is missing"),
        (FULL | {"command": '["x", "{port}"]'}, "one of server, command"),
        ({"command": '["x"]'}, "command must hold {port}"),
        ({"command": '["x", "{port}"]', "args": '["-v"]'}, "args: write it into command"),
        (FULL | {"devices": "[0, 0]"}, "each once"),
        (FULL | {"devices": '["cuda:0"]'}, "UUIDs"),
        (FULL | {"environment": '{ HF_TOKEN = "hf_1" }'}, "env:NAME"),
        (FULL | {"ready_s": "590.0"}, "limits.max_load_s"),
    ]
    for (options, problem), case in each(cases):
        with case:
            with pytest.raises(SettingsError) as error:
                read(tmp_path, **options)
            assert problem in str(error.value)


def test_a_model_that_is_not_there_is_a_problem_of_its_files(tmp_path: Path) -> None:
    [problem] = read(tmp_path, **FULL).file_problems()
    assert "there is no file or folder" in problem
    (tmp_path / "llama").mkdir()
    assert read(tmp_path, **FULL).file_problems() == []


def test_the_client_sends_as_many_as_the_server_takes(tmp_path: Path) -> None:
    given = ServerOptions(**read(tmp_path, **FULL, sequences="7").options)
    client = given.upstream(4711)
    assert (client.url, client.model, client.stream) == ("http://127.0.0.1:4711/v1", "model", True)
    assert client.concurrency.max == client.concurrency.start == 7
