"""Entries of engines for images, generation and servers: what is wrong is told without torch."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from jobs.intake import validation
from jobs.models import models_file
from jobs.models.engines.engine_spec import EntryContext
from jobs.models.engines.image_options import ImageOptions
from jobs.models.engines.server_options import ServerOptions
from jobs.models.model import Model
from jobs.settings import SettingsError
from tests.support.cases import each
from tests.support.models import custom_models

BUILTIN: dict[str, Any] = {"builtin": "efficientnet-lite0"}


def test_options_of_images_that_do_not_fit_together_are_told_and_lanes_go_by_shapes() -> None:
    cases = [
        ({}, "one of builtin, file, module must be set; there is none"),
        ({"module": "m"}, "build is missing"),
        ({"builtin": "resnet"}, "efficientnet-lite0"),
        (BUILTIN | {"module": "m", "build": "B"}, "there are builtin and module"),
        (BUILTIN | {"labels": ["a"]}, "labels: efficientnet-lite0 has its"),
        ({"module": "m", "build": "B", "weights": "w.bin", "sha256": "0"}, "only .safetensors"),
        ({"module": "m", "build": "B", "weights": "w.safetensors"}, "weights goes with sha256"),
        ({"module": "m", "build": "B", "labels": "cat"}, "labels"),
    ]
    for (options, said), case in each(cases):
        with case:
            context = EntryContext(Path("/folder"), "image_classification", {})
            with pytest.raises(ValueError, match=said):
                ImageOptions.model_validate(options, context=context)
    model = Model("m", "1", "image_classifier", options=BUILTIN)
    assert model.effective_task == "image_classification"
    assert len(model.buckets) == 9
    assert model.buckets == model.size_buckets
    assert (model.spec.unit, model.pads) == ("pixels", True)


OPTIONS = {"path": "x", "sha256": "0", "config_sha256": "0", "tokenizer_sha256": "0"}


def read_transformers(folder: Path, **options: object) -> models_file.Registry:
    path = folder / "models.toml"
    path.write_text(custom_models.entry("m", "transformers", **OPTIONS | options))
    return models_file.load(path)


def test_a_model_that_generates_chats_in_tokens_and_inputs_are_checked_where_they_come_in(
    tmp_path: Path,
) -> None:
    [model] = read_transformers(tmp_path)
    assert (model.effective_task, model.spec.unit, model.spec.generates) == ("chat", "tokens", True)
    assert model.options["path"] == str(tmp_path / "x")
    assert model.size({"messages": [{"role": "user", "content": "word " * 40}]}, {}) >= 40
    assert validation.refuse_input(model, {"messages": [{"role": "user", "content": "hi"}]}) is None
    assert validation.refuse_input(model, {"messages": []})


def test_options_of_models_that_generate_are_checked_and_so_is_their_folder(tmp_path: Path) -> None:
    cases = [
        ({"dtype": "int8"}, "options.dtype"),
        ({"sequences": 0}, "options.sequences"),
        ({"blocks": 10, "cache_mb": 10}, "leave one out"),
        ({"threads": 0}, "options.threads"),
        ({"pages": 3}, "pages"),
    ]
    for (options, said), case in each(cases):
        with case, pytest.raises(SettingsError, match=said):
            read_transformers(tmp_path, **options)
    [model] = read_transformers(tmp_path)
    assert "there is no folder" in model.file_problems()[0]
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "config.json").write_text('{"architectures": ["BertForTokenClassification"]}')
    assert any("ForCausalLM" in problem for problem in model.file_problems())


def test_the_context_is_what_the_entry_says_within_what_the_folder_has(tmp_path: Path) -> None:
    own: dict[str, Any] = {"max_position_embeddings": 2048}
    sliding = {**own, "sliding_window": 512}
    cases: list[tuple[Any, dict[str, Any], int]] = [
        (own, {}, 2048),
        (own, {"context_tokens": 100}, 100),
        (own, {"context_tokens": 5000}, 2048),
        (sliding, {}, 512),
        ({**sliding, "use_sliding_window": False}, {}, 2048),
        ({"text_config": own}, {}, 2048),
        ({}, {}, 0),
        ({}, {"context_tokens": 100}, 100),
        (None, {"context_tokens": 100}, 0),  # its folder is missing
        ({"text_config": "x", **own}, {}, 2048),
        ({"max_position_embeddings": True}, {}, 0),
        ([], {}, 0),  # no object
        ("{", {}, 0),  # half of a file, as while it is replaced
    ]
    for n, (config, options, context) in enumerate(cases):
        folder = tmp_path / str(n)
        folder.mkdir()
        if config is not None:
            raw = config if isinstance(config, str) else json.dumps(config)
            (folder / "config.json").write_text(raw)
        entry = Model("m", "1", "transformers", options={"path": str(folder), **options})
        assert entry.context_tokens == context, (config, options)
    others = {"server": 0, "openai": 0, "echo": 0, "echo_chat": 8192, "minilm": 256}
    assert {name: Model("m", "1", name).context_tokens for name in others} == others
    options = {"context_tokens": 7}
    assert Model("m", "1", "server", options=options).context_tokens == 7


FULL = {"server": '"vllm"', "version": '"0.33.0"', "path": '"llama"'}


def read_server(folder: Path, **options: str) -> Any:
    table = "\n".join(f"{name} = {value}" for name, value in options.items())
    (folder / "models.toml").write_text(
        f'[[model]]\nname = "m"\nversion = "1"\nengine = "server"\n[model.options]\n{table}'
    )
    [model] = models_file.read(folder / "models.toml")
    return model


def test_a_server_has_paths_from_the_folder_of_the_file_and_takes_as_many_as_its_client_sends(
    tmp_path: Path,
) -> None:
    model = read_server(tmp_path, **FULL, program='"venvs/vllm"')
    assert model.spec.generates
    assert model.options["path"] == str(tmp_path / "llama")
    assert model.options["program"] == str(tmp_path / "venvs/vllm")
    assert read_server(tmp_path, **FULL, program='"vllm"').options["program"] == "vllm"
    [problem] = read_server(tmp_path, **FULL).file_problems()
    assert "there is no file or folder" in problem
    (tmp_path / "llama").mkdir()
    assert read_server(tmp_path, **FULL).file_problems() == []
    given = ServerOptions(**read_server(tmp_path, **FULL, sequences="7").options)
    client = given.upstream(4711)
    assert (client.url, client.model, client.stream) == ("http://127.0.0.1:4711/v1", "model", True)
    assert client.concurrency.max == client.concurrency.start == 7


def test_faults_of_an_entry_of_a_server_are_reported(tmp_path: Path) -> None:
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
        with case, pytest.raises(SettingsError, match=re.escape(problem)):
            read_server(tmp_path, **options)
