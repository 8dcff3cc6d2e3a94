"""Floating-point operations of a launch, and how many of them a device does at most."""

import sys
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

#: Dense bf16 products a second, by the cards' data sheets; PCIe variants have less.
_PEAK_TFLOPS = {"H100": 989.0, "H200": 989.0, "A100": 312.0, "L40S": 362.0, "L4": 121.0}


def peak_tflops(device: str) -> float:
    """Returns the bf16 peak of a device by its product name, TFLOP/s; 0 where it isn't known."""
    return next((peak for card, peak in _PEAK_TFLOPS.items() if card in device.split()), 0.0)


def count_flops(launch: Callable[[], Any]) -> float:
    """Runs a launch; returns the floating-point operations of its matrix products, convolutions and
    attention, two a multiplication. 0 where torch does none in this thread, as behind a server.

    `varlen_attn` isn't counted by torch, nor are integer products."""
    if "torch" not in sys.modules:
        return 0.0
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    more = {torch.ops.mkldnn._linear_pointwise: _linear_flops}  # of packed weights on the CPU
    with FlopCounterMode(display=False, custom_mapping=more) as counter:
        launch()
    return float(counter.get_total_flops())


def _linear_flops(x: Sequence[int], weight: Sequence[int], *_: Any, **__: Any) -> int:
    """Returns the operations of x [..., n] times weight [m, n], by their shapes."""
    return 2 * prod(x) * weight[0]
