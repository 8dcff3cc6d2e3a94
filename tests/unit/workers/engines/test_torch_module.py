"""Networks of torch: built by code or exported, with weights from safetensors and no pickle."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from jobs.artifacts.declared import Untrusted
from tests.support.models import custom_models
from workers.engines.common.user_code import Faulty
from workers.engines.protocol import InvalidInput, Permanent
from workers.engines.torch_module import TorchModule

pytestmark = pytest.mark.heavy

VECTORS = [[1, 2, 3, 4], [0.5, 0, 0, -1], [0, 0, 0, 0]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("torch")
    custom_models.save_network(made)
    custom_models.save_export(made)
    return made


def built(folder: Path, **options: Any) -> TorchModule:
    path = folder / "net.safetensors"
    given = {"weights": str(path), "sha256": custom_models.digest(path)}
    given |= {"file": str(folder / "net.py"), "build": "Net", "device": "cpu"}
    return TorchModule(**given | options)


def exported(folder: Path, **options: Any) -> TorchModule:
    archive, weights = folder / "net.pt2", folder / "exported.safetensors"
    given = {"export": str(archive), "export_sha256": custom_models.digest(archive)}
    given |= {"weights": str(weights), "sha256": custom_models.digest(weights), "device": "cpu"}
    return TorchModule(**given | options)


def outputs(engine: TorchModule, inputs: list[Any]) -> list[Any]:
    batch = [one.data for one in engine.prepare(inputs, {})]
    return [np.asarray(row).tolist() for row in engine.run(batch, {})]


@pytest.mark.parametrize("make", [built, exported])
def test_outputs_are_those_of_the_network(make: Any, folder: Path) -> None:
    expected = custom_models.network()(torch.tensor(VECTORS)).tolist()
    engine = make(folder)
    assert np.allclose(outputs(engine, VECTORS), expected)
    assert np.allclose(outputs(engine, VECTORS[:1]), expected[:1])
    assert engine.memory_mb() > 0


def test_an_archive_says_itself_what_it_takes_and_one_of_one_batch_size_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    engine = exported(folder)
    assert engine.samples() == [[0.0] * 4]
    [no] = engine.prepare([[1, 2]], {})
    assert str(no) == "the input has shape [2], not [4]"
    custom_models.save_export(tmp_path, rows=None)
    with pytest.raises(Faulty, match=r"takes launches of 2 alone: export it .*Dim\.DYNAMIC"):
        exported(tmp_path)


def of_code(folder: Path, forward: str, **options: Any) -> TorchModule:
    """A network whose forward pass over x is this expression."""
    (folder / "own.py").write_text(
        f"import torch\nclass Own(torch.nn.Module):\n    def forward(self, x): return {forward}\n"
    )
    return TorchModule(file=str(folder / "own.py"), build="Own", device="cpu", **options)


@pytest.mark.parametrize("make", [built, exported])
def test_products_may_be_computed_in_16_bit(make: Any, folder: Path) -> None:
    inputs = [[0.1, -0.2, 0.3, 0.4]]
    whole, half = (outputs(make(folder, autocast=kind), inputs) for kind in ("", "bfloat16"))
    assert half != whole
    assert np.allclose(half, whole, rtol=0, atol=0.02)


def test_launches_mix_shapes_where_the_network_takes_them(tmp_path: Path) -> None:
    engine = of_code(tmp_path, "x.sum(1)")
    assert outputs(engine, [[1, 2], [1, 2, 3], [3, 4], [[1, 2], [3, 4]]]) == [3, 6, 7, [4, 6]]
    limited = of_code(tmp_path, "x.sum(1)", shape=[-1])
    assert isinstance(limited.prepare([[[1]]], {})[0], InvalidInput)
    assert outputs(limited, [[1], [1, 2]]) == [1, 3]


def test_hooks_stand_before_and_after(folder: Path) -> None:
    engine = built(folder, file=str(folder / "texts.py"))
    text = [3, (ord("a") + ord("b") + ord("a")) / 100, 2, 1]
    [row] = custom_models.network()(torch.tensor([text])).tolist()
    [found] = engine.run([one.data for one in engine.prepare(["aba"], {})], {})
    assert found["best"] == int(np.argmax(row))
    assert found["row"] == pytest.approx(row)
    [no] = engine.prepare([5], {})
    assert str(no).startswith("texts.py:")
    assert "AttributeError" in str(no)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("text", "must be numbers"),
        (None, "must be numbers"),
        (True, "must be numbers"),
        ({"x": 1}, "must be numbers"),
        ([1, "2"], "must be numbers"),
        ([[1], [1, 2]], "not all of one length"),
        ([1e39, 0, 0, 0], "holds a number that is no float32"),
    ],
)
def test_what_is_no_tensor_is_refused(folder: Path, value: Any, said: str) -> None:
    [no] = built(folder).prepare([value], {})
    assert isinstance(no, InvalidInput)
    assert said in str(no)


def test_whole_numbers_stay_what_they_are(folder: Path) -> None:
    engine = built(folder, dtype="int32")
    for value, said in ((0.5, "whole numbers"), (2**31, "is no int32"), (2**70, "whole numbers")):
        [no] = engine.prepare([[value]], {})
        assert said in str(no)


def test_a_network_that_gives_no_row_for_each_is_told(tmp_path: Path) -> None:
    engine = of_code(tmp_path, "x[0] if len(x) > 1 else (x, x)")
    row = np.zeros(3, np.float32)
    with pytest.raises(Permanent, match=r"returned \[3\] for 2 rows"):
        engine.run([row, row], {})
    with pytest.raises(Permanent, match="returned a tuple for 1 rows"):
        engine.run([row], {})


def test_weights_must_be_what_was_declared_and_make_a_network(folder: Path) -> None:
    with pytest.raises(RuntimeError, match="size mismatch"):
        built(folder, arguments={"width": 5})
    with pytest.raises(Untrusted, match="is not the file that was declared"):
        built(folder, sha256="0" * 64)
    with pytest.raises(Untrusted, match=r"options\.sha256 is missing"):
        built(folder, sha256="")
    with pytest.raises(Untrusted, match="is not the file that was declared"):
        exported(folder, export_sha256="0" * 64)
    with pytest.raises(Faulty, match="has no function Absent"):
        built(folder, build="Absent")
    with pytest.raises(Faulty, match="preprocess made a list, not a torch"):
        built(folder, file=str(folder / "texts.py"), build="preprocess", arguments={"text": "a"})


def test_no_pickle_in_an_archive_is_opened(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    poisoned = tmp_path / "net.pt2"
    with zipfile.ZipFile(folder / "net.pt2") as old, zipfile.ZipFile(poisoned, "w") as new:
        for name in old.namelist():
            graph = name.endswith(".json") or "archive" in name
            new.writestr(name, old.read(name) if graph else pickle.dumps(custom_models.Evil()))
    digest = custom_models.digest(poisoned)
    engine = exported(folder, export=str(poisoned), export_sha256=digest)
    assert len(outputs(engine, VECTORS)) == 3
    assert not (tmp_path / "pwned").exists()


def test_what_is_no_archive_or_lacks_tensors_is_refused(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(pickle.dumps(custom_models.Evil()))
    with pytest.raises(Faulty, match=r"is no archive of torch\.export\.save"):
        exported(folder, export=str(path), export_sha256=custom_models.digest(path))
    tensors = load_file(folder / "exported.safetensors")
    del tensors["shift"], tensors["linear.bias"]
    path = tmp_path / "less.safetensors"
    save_file(tensors, path)
    with pytest.raises(Faulty, match=r"lacks linear\.bias, shift: save state_dict and constants"):
        exported(folder, weights=str(path), sha256=custom_models.digest(path))
