"""Weights are loaded where they are what was declared, and never where they are a pickle."""

import pickle
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from jobs.artifacts.declared import Untrusted
from jobs.models.inputs.input_size import minilm_folder
from tests.support.cases import each
from workers.engines.minilm import SHA256, MiniLM

pytestmark = pytest.mark.heavy


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    shutil.copy(minilm_folder() / "model.safetensors", path)
    return path


def test_weights_that_are_declared_are_loaded_unless_a_single_bit_changed(copied: Path) -> None:
    engine = MiniLM(str(copied), SHA256.upper(), device="cpu")
    assert engine.memory_mb() > 80
    with copied.open("r+b") as file:
        file.seek(50_000_000)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(Untrusted, match=r"model\.safetensors is not the file that was declared"):
        MiniLM(str(copied), SHA256, device="cpu")


def test_weights_need_a_file_and_its_checksum_and_the_packages_own_are_verified(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Untrusted, match=r"options\.sha256 is missing"):
        MiniLM(str(copied), device="cpu")
    with pytest.raises(Untrusted, match=r"absent\.safetensors can't be read"):
        MiniLM(str(tmp_path / "absent.safetensors"), SHA256, device="cpu")
    monkeypatch.setattr("workers.engines.minilm.SHA256", "0" * 64)
    with pytest.raises(Untrusted, match="not the file that was declared"):
        MiniLM(device="cpu")


class Evil:
    """What a pickle runs when it is loaded."""

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("pwned"),)


def test_a_pickle_is_refused_whatever_its_name_and_so_are_safetensors_of_another_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pickles = ["pytorch_model.bin", "model.pt", "model.ckpt", "model.pkl"]
    cases = [(name, f"{name} is not loaded: only .safetensors is") for name in pickles]
    for (name, said), case in each([*cases, ("model.safetensors", "(?i)header")]):
        with case:
            path = tmp_path / name
            path.write_bytes(pickle.dumps(Evil()))
            error = Exception if name == "model.safetensors" else Untrusted
            with pytest.raises(error, match=said):
                MiniLM(str(path), sha256(path.read_bytes()).hexdigest(), device="cpu")
            assert not (tmp_path / "pwned").exists()
    save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(KeyError):
        MiniLM(str(path), sha256(path.read_bytes()).hexdigest(), device="cpu")
