"""Modules of users that have names of our packages: they are named where a model's code imports
them."""

from pathlib import Path

import pytest

from jobs.processes import hidden_modules, packages


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder of a models file, with the code of a model and of what has the name of a package."""
    (tmp_path / "model.py").write_text("from jobs import helper\nimport torch\n")
    (tmp_path / "jobs.py").write_text("helper = 1\n")
    return tmp_path


def problems(folder: Path, **options: str) -> list[str]:
    return [no.replace(f"{folder}/", "") for no in hidden_modules.problems(options, folder)]


def test_the_file_the_package_the_importer_and_the_way_out_are_named_also_of_names_in_options(
    folder: Path,
) -> None:
    assert problems(folder, file=str(folder / "model.py")) == [
        "jobs.py has the name of Millrace's package 'jobs', which model.py would import in its "
        "place: rename it, as to my_jobs.py"
    ]
    [said] = problems(folder, function="jobs:helper")
    assert "which options.function would import" in said
    assert problems(folder, module="jobs.more") == [said.replace("function", "module")]
    assert problems(folder, module="model") == problems(folder, file=str(folder / "model.py"))


@pytest.mark.parametrize("name", packages.NAMES)
def test_a_folder_is_hidden_too_with_or_without_an_init(folder: Path, name: str) -> None:
    (folder / "model.py").write_text(f"def load():\n    import {name}.helper\n")
    (folder / "jobs.py").unlink()
    (folder / name).mkdir()
    assert problems(folder, file=str(folder / "model.py")) == []
    (folder / name / "helper.py").touch()
    [said] = problems(folder, file=str(folder / "model.py"))
    assert said.startswith(f"{name} has the name of Millrace's package {name!r}, which model.py")


def test_imports_of_other_modules_are_followed(folder: Path) -> None:
    (folder / "model.py").write_text("from beside.inner import predict\n")
    (folder / "beside" / "inner").mkdir(parents=True)
    (folder / "beside" / "inner" / "__init__.py").write_text("from ..more import predict\n")
    (folder / "beside" / "more.py").write_text("import beside.more, jobs\n")
    [said] = problems(folder, file=str(folder / "model.py"))
    assert "which more.py would import" in said


def test_a_module_on_the_import_path_is_found(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path_factory.mktemp("elsewhere") / "model.py"
    file.write_text("import jobs")
    assert hidden_modules.problems({"file": str(file)}) == []
    monkeypatch.syspath_prepend(folder)
    assert len(hidden_modules.problems({"file": str(file)})) == 1


def test_what_no_code_of_a_model_imports_and_our_own_packages_are_no_rivals(folder: Path) -> None:
    (folder / "model.py").write_text("from beside_it import jobs\n")
    (folder / "beside_it.py").write_text("this is no Python, which loading it tells")
    assert problems(folder, file=str(folder / "model.py")) == []
    assert problems(folder, file=str(folder / "absent.py"), path="x") == []
    (folder / "model.py").write_text("from jobs import helper")
    (folder / "jobs.py").unlink()
    assert problems(folder, file=str(folder / "model.py")) == []
    ours = Path(packages.__file__).parents[2]
    assert hidden_modules.problems({"module": "jobs.clock"}, ours) == []
