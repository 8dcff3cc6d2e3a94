"""Entries of models that people bring: what is wrong with them is told at once, without torch."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.intake import validation
from jobs.models import models_file
from jobs.models.engines.engine_spec import GENERAL_TASKS
from jobs.models.registry import Registry
from jobs.settings import SettingsError
from ops.cli import check as checks
from tests.support.cases import each
from tests.support.models import custom_models

HUGGINGFACE = 'path = "x", sha256 = "0", config_sha256 = "0", tokenizer_sha256 = "0"'


def read(folder: Path, *entries: str) -> Registry:
    path = folder / "models.toml"
    path.write_text("".join(entries))
    return models_file.load(path)


def problems(folder: Path, engine: str, options: str, more: str = "") -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(folder, custom_models.entry("a", engine, f"{more}\noptions = {{ {options} }}"))
    prefix = f"{folder}/models.toml: [[model]] number 1: "
    assert all(problem.startswith(prefix) for problem in caught.value.problems)
    return [problem.removeprefix(prefix) for problem in caught.value.problems]


@pytest.mark.heavy
def test_paths_go_from_where_the_models_file_is(
    own_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own_models.parent)
    for path in (own_models, Path(own_models.name)):
        models = models_file.load(path)
        assert models.resolve("python").options["file"] == str(own_models.parent / "own.py")
        assert models.resolve("tokens").options["path"] == str(own_models.parent / "tokens")
    absolute = custom_models.entry("a", "python", file="/elsewhere/own.py")
    models = read(own_models.parent / "tokens", absolute)
    assert models.resolve("a").options["file"] == "/elsewhere/own.py"


def test_own_code_may_do_anything_and_a_folder_what_its_entry_says(tmp_path: Path) -> None:
    for task in GENERAL_TASKS:
        entry = custom_models.entry("a", "python", f'task = "{task}"', file="own.py")
        [model] = read(tmp_path, entry)
        assert model.effective_task == task
        takes_texts = task in ("text", "embedding", "classification", "tokens")
        assert model.spec.text_only == takes_texts
        refuses_numbers = takes_texts or task in ("reranking", "chat")
        assert bool(validation.refuse_input(model, 5)) == refuses_numbers
    [model] = read(tmp_path, custom_models.entry("a", "python", file="own.py"))
    assert model.effective_task == "any"
    said = "there are: classification, tokens, embedding, reranking"
    [problem] = problems(tmp_path, "huggingface", HUGGINGFACE)
    assert problem == f"engine 'huggingface' needs a task; {said}"
    [problem] = problems(tmp_path, "huggingface", HUGGINGFACE, 'task = "chat"')
    assert problem == f"no task 'chat'; {said}"


NET = 'file = "a", build = "N"'


def test_what_is_wrong_with_options_is_named(tmp_path: Path) -> None:
    cases = [
        ("python", "", "", ["options: one of file, module must be set; there is none"]),
        ("python", "", 'file = "a", module = "b"',
         ["one of file, module must be set; there are file and module"]),
        ("python", "", 'module = "b", file_sha256 = "0"', ["file_sha256 goes with file, which is"]),
        ("python", "", "file = 5", ["options.file must be a valid string"]),
        ("python", "", 'file = "a", fil = "b", weights = "c"',
         ["unknown key 'fil' in options; there are: file,", "'we"]),
        ("torch", "", "",
         ["one of file, module, export must be set; there is none", "options: build is missing"]),
        ("torch", "", 'file = "a"', ["options: build is missing"]),
        ("torch", "", NET + ', weights = "w.safetensors"', ["weights goes with sha256"]),
        ("torch", "", NET + ', weights = "w.bin", sha256 = "0"', ["only .safetensors"]),
        ("torch", "", NET + ', sha256 = "0"', ["options: sha256 goes with weights"]),
        ("torch", "", 'export = "a"',
         ["export goes with weights", "export goes with export_sha256"]),
        ("torch", "", 'export = "a", export_sha256 = "0", weights = "w.safetensors", sha256 = "0", '
         'build = "N"', ["options: build makes a network, and export is one"]),
        ("torch", "", NET + ", threads = 0", ["threads must be greater than or equal to 1, not 0"]),
        ("torch", "", NET + ', dtype = "int8"', ["dtype must be 'float32', 'float16', 'int64'"]),
        ("torch", "", NET + ", shape = 4", ["shape must be a valid list"]),
        ("torch", "", NET + ", shape = [0.5]", ["options.shape number 1 must be a valid integer"]),
        ("huggingface", "tokens", "",
         [f"options.{one} is missing" for one in ("path", *custom_models.UNCHECKED)]),
        ("huggingface", "tokens", HUGGINGFACE + ', pooling = "cls"',
         ["unknown key 'pooling' in options"]),
        ("huggingface", "embedding", HUGGINGFACE + ', pooling = "max"',
         ["pooling must be 'mean', 'cls' or 'last', not 'max'"]),
        ("huggingface", "embedding", HUGGINGFACE + ", normalize = 1",
         ["normalize must be true or false"]),
        ("huggingface", "reranking", HUGGINGFACE + ', activation = ""',
         ["must be 'sigmoid' or 'none', not"]),
        ("huggingface", "tokens", HUGGINGFACE + ", max_tokens = 2",
         ["max_tokens must be greater than or equal to 3, not 2"]),
    ]  # fmt: skip
    for (engine, task, options, said), case in each(cases):
        with case:
            found = problems(tmp_path, engine, options, f'task = "{task}"' if task else "")
            assert len(found) == len(said)
            assert all(word in problem for word, problem in zip(said, found, strict=True))


FOLDERS = {"headless": "tokens", "pickled": "reranking", "broken": "tokens", "nowhere": "tokens"}


@pytest.mark.heavy
def test_what_is_wrong_with_the_files_is_told_all_at_once(own_models: Path, tmp_path: Path) -> None:
    shutil.copytree(own_models.parent / "embedding", tmp_path / "headless")
    shutil.copytree(own_models.parent / "classification", tmp_path / "pickled")
    (tmp_path / "pickled" / "model.safetensors").rename(tmp_path / "pickled" / "model.bin")
    (tmp_path / "pickled" / "tokenizer.json").unlink()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("[")
    net = {"file": "net.py", "build": "N", "weights": "n.safetensors", "sha256": "0"}
    entries = [custom_models.entry("code", "python", file="absent.py")]
    entries.append(custom_models.entry("net", "torch", **net))
    for name, task in FOLDERS.items():
        options = {"path": name, **custom_models.UNCHECKED}
        entries.append(custom_models.entry(name, "huggingface", f'task = "{task}"', **options))
    models = read(tmp_path, *entries)
    found = [no.replace(f"{tmp_path}/", "") for model in models for no in model.file_problems()]
    expected = [
        "code@1: options.file: there is no file absent.py",
        "net@1: options.file: there is no file net.py",
        "net@1: options.weights: there is no file n.safetensors",
        "headless@1: headless: BertModel does no tokens; that takes a …ForTokenClassification",
        "pickled@1: pickled has no tokenizer.json; tokenizer.save_pretrained of a fast",
        "pickled@1: pickled has no model.safetensors, but pickled weights, which are not",
        "pickled@1: pickled: reranking takes a model with one label, this one has 3",
        "broken@1: broken has no tokenizer.json",
        "broken@1: broken has no model.safetensors",
        "broken@1: broken/config.json can't be read",
        "nowhere@1: options.path: there is no folder nowhere",
    ]
    assert len(found) == len(expected)
    assert all(no.startswith(said) for no, said in zip(found, expected, strict=True))


@pytest.mark.heavy
def test_an_entry_of_a_folder_is_read_and_its_texts_counted_without_torch(own_models: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from jobs.models import models_file\n"
        f"models = models_file.load(Path({str(own_models)!r}))\n"
        "assert models.resolve('tokens').size('a cat', {}) == 4\n"
        "assert not any(model.file_problems() for model in models)\n"
        "sys.exit(bool({'torch', 'transformers', 'safetensors', 'own'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == 0


def test_millrace_check_tells_of_files_beside_what_else_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = 'options = { function = "jobs:helper" }'
    absent = custom_models.entry("a", "python", file="absent.py")
    read(tmp_path, absent, custom_models.entry("b", "function", function))
    (tmp_path / "jobs.py").touch()
    monkeypatch.setenv("MILLRACE_MODELS", str(tmp_path / "models.toml"))
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MILLRACE_REDIS_URL", "redis://127.0.0.1:1/0")
    first, hidden, second = checks.problems()
    assert first == f"a@1: options.file: there is no file {tmp_path}/absent.py"
    assert hidden.startswith(f"b@1: {tmp_path}/jobs.py has the name of Millrace's package 'jobs'")
    assert second.startswith("MILLRACE_REDIS_URL")
