"""Layouts of texts: which one a model gets, and what the one for a GPU promises."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.unit.workers.engines.encoders.varlen import varlen_attn
from workers.engines.common import device
from workers.engines.encoders import attention
from workers.engines.encoders.attention import Attention
from workers.engines.encoders.layouts import Packed, Padded, Varlen, choose
from workers.engines.minilm import MiniLM

pytestmark = pytest.mark.heavy

CPU, CUDA, OLDER = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)
HALF, FULL = torch.bfloat16, torch.float32


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """An H200, and a T4."""
    capabilities = {CUDA: (9, 0), OLDER: (7, 5)}
    monkeypatch.setattr(torch.cuda, "get_device_capability", capabilities.__getitem__)


def texts(*lengths: int) -> list[NDArray[np.int32]]:
    draw = random.Random(7)
    return [np.array([draw.randrange(1000, 30000) for _ in range(n)], np.int32) for n in lengths]


@pytest.mark.parametrize(
    ("name", "place", "dtype", "head", "biased", "layout"),
    [
        ("packed", CPU, FULL, 32, False, Packed),
        ("packed", CPU, HALF, 32, True, Packed),
        ("padded", CPU, FULL, 32, False, Padded),
        ("packed", CUDA, HALF, 32, False, Varlen),
        ("packed", CUDA, torch.float16, 26, False, Varlen),
        ("packed", CUDA, FULL, 32, False, Packed),
        ("packed", CUDA, HALF, 512, False, Packed),
        ("packed", CUDA, HALF, 32, True, Packed),
        ("padded", CUDA, HALF, 32, False, Padded),
        ("packed", OLDER, HALF, 32, False, Packed),
    ],
)
def test_the_layout_follows_what_is_declared_and_the_device(
    gpus: None,
    name: str,
    place: torch.device,
    dtype: torch.dtype,
    head: int,
    biased: bool,
    layout: type,
) -> None:
    assert choose(name, place, dtype, head, biased=biased) is layout


def test_a_torch_without_the_kernel_computes_each_length_by_itself(
    gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_VARLEN_OPTIONS", frozenset())
    assert choose("packed", CUDA, HALF, 32) is Packed


def test_numbers_are_of_16_bit_where_a_gpu_computes_them_unless_an_entry_says_otherwise(
    gpus: None,
) -> None:
    chosen = [device.dtype(device.AUTO, place) for place in (CPU, CUDA, OLDER)]
    assert chosen == [FULL, HALF, FULL]
    assert device.dtype("float16", CUDA) is torch.float16


def test_a_torch_that_groups_no_heads_has_them_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "varlen_attn", varlen_attn)
    monkeypatch.setattr(attention, "_VARLEN_OPTIONS", frozenset({"scale", "window_size"}))
    parts = [torch.randn(9, heads, 8) for heads in (4, 2, 2)]
    starts = torch.tensor([0, 4, 9], dtype=torch.int32)
    wanted = varlen_attn(*parts, starts, starts, 5, 5, enable_gqa=True)
    torch.testing.assert_close(Attention().varlen(parts, starts, 5), wanted)


def test_a_launch_for_a_gpu_is_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "varlen_attn", varlen_attn)
    sent: list[NDArray[Any]] = []

    def send(array: NDArray[Any]) -> Tensor:
        sent.append(array)
        return torch.from_numpy(array)

    launch = Varlen(texts(3, 9, 4), send)
    qkv = torch.randn(16, 3, 2, 8)
    launch.attend(qkv.unbind(1))
    launch.pool(qkv.view(16, -1))
    launch.unpack(qkv)
    assert len(sent) == 1
    assert sent[0].dtype == np.int32


def test_vectors_for_a_gpu_are_those_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = texts(1, 2, 256, 3, 40, 3)
    wanted = MiniLM(device="cpu").run(batch, {})
    monkeypatch.setattr(attention, "varlen_attn", varlen_attn)
    monkeypatch.setattr("workers.engines.encoders.layouts.Packed", Varlen)
    np.testing.assert_allclose(MiniLM(device="cpu").run(batch, {}), wanted, rtol=0, atol=1e-5)


def test_the_mean_of_a_text_has_the_same_bits_beside_any_other() -> None:
    own, others = texts(17), texts(3, 400, 1, 60)
    x = torch.randn(17, 384).to(HALF)
    around = [torch.randn(n, 384).to(HALF) for n in (3, 400, 1, 60)]
    alone = Varlen(own, torch.from_numpy).pool(x)[0]
    launch = Varlen([*others[:2], *own, *others[2:]], torch.from_numpy)
    assert torch.equal(launch.pool(torch.cat([*around[:2], x, *around[2:]]))[2], alone)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_vectors_of_16_bit_point_the_same_way(dtype: str) -> None:
    batch = texts(3, 256, 15, 40, 100, 7)
    wanted, half = (MiniLM(device="cpu", dtype=kind).run(batch, {}) for kind in ("auto", dtype))
    assert half.dtype == np.float32
    assert (half * wanted).sum(1).min() >= 0.9995


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    "how", [Attention(), Attention(causal=True), Attention(window=4), Attention(0.3, True, 4)]
)
def test_the_kernel_computes_what_it_says(how: Attention) -> None:
    lengths = [1, 2, 300, 17, 64]
    starts = torch.tensor(np.cumsum([0, *lengths]), dtype=torch.int32)
    parts = [torch.randn(sum(lengths), heads, 64).to(HALF) for heads in (4, 2, 2)]
    found = how.varlen([part.cuda() for part in parts], starts.cuda(), max(lengths)).cpu()
    window = -1 if how.window is None else how.window
    wanted = varlen_attn(
        *(part.float() for part in parts),
        starts,
        starts,
        max(lengths),
        max(lengths),
        scale=how.scale,
        window_size=(window, 0 if how.causal else window),
        enable_gqa=True,
    )
    torch.testing.assert_close(found.float(), wanted, rtol=0.02, atol=0.02)
