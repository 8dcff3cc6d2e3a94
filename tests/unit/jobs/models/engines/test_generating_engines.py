"""Entries of models that generate: what is wrong with them is told without torch."""

from pathlib import Path

import pytest

from jobs.intake import validation
from jobs.models import models_file
from jobs.settings import SettingsError
from tests.support.cases import each
from tests.support.models import custom_models

OPTIONS = {"path": "x", "sha256": "0", "config_sha256": "0", "tokenizer_sha256": "0"}


def read(folder: Path, **options: object) -> models_file.Registry:
    path = folder / "models.toml"
    path.write_text(custom_models.entry("m", "transformers", **OPTIONS | options))
    return models_file.load(path)


def test_it_generates_chats_in_tokens(tmp_path: Path) -> None:
    [model] = read(tmp_path)
    assert (model.effective_task, model.spec.unit, model.spec.generates) == ("chat", "tokens", True)
    assert model.options["path"] == str(tmp_path / "x")
    assert model.size({"messages": [{"role": "user", "content": "word " * 40}]}, {}) >= 40


def test_options_are_checked(tmp_path: Path) -> None:
    cases = [
        ({"dtype": "int8"}, "options.dtype"),
        ({"sequences": 0}, "options.sequences"),
        ({"blocks": 10, "cache_mb": 10}, "leave one out"),
        ({"threads": 0}, "options.threads"),
        ({"pages": 3}, "pages"),
    ]
    for (options, said), case in each(cases):
        with case, pytest.raises(SettingsError, match=said):
            read(tmp_path, **options)


def test_inputs_are_checked_where_they_come_in(tmp_path: Path) -> None:
    [model] = read(tmp_path)
    assert validation.refuse_input(model, {"messages": [{"role": "user", "content": "hi"}]}) is None
    assert validation.refuse_input(model, {"messages": []})


def test_a_folder_of_another_kind_of_model_is_named(tmp_path: Path) -> None:
    [model] = read(tmp_path)
    assert "there is no folder" in model.file_problems()[0]
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "config.json").write_text('{"architectures": ["BertForTokenClassification"]}')
    assert any("ForCausalLM" in problem for problem in model.file_problems())
