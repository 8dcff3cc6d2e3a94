"""Floating-point operations of a launch, and how many of them a device does at most."""

import logging
import re
import sys
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

_log = logging.getLogger(__name__)

#: Dense bf16 operations a second by the cards' data sheets, TFLOP/s, by words of their names: the
#: first row of which all are there.
_PEAK_TFLOPS = (
    ({"H100", "PCIe"}, 756.0),
    ({"H100", "NVL"}, 835.0),
    ({"H200", "NVL"}, 835.0),
    ({"H100"}, 989.0),
    ({"H200"}, 989.0),
    ({"GH200"}, 989.0),
    ({"A100"}, 312.0),
    ({"L40S"}, 362.0),
    ({"L4"}, 121.0),
)


def peak_tflops(device: str) -> float:
    """Returns the bf16 peak of a device by its product name, TFLOP/s; 0 where it isn't known, as of
    a part of a card (MIG)."""
    words = set(re.split(r"[\s-]+", device))
    if "MIG" in words:
        return 0.0
    return next((peak for card, peak in _PEAK_TFLOPS if card <= words), 0.0)


def count_flops(launch: Callable[[], Any]) -> float:
    """Runs a launch; returns the floating-point operations of its matrix products, convolutions and
    attention, two a multiplication. 0 where torch does none in this thread, or can't count them.

    Not counted are products of integers, recurrent layers, torch's fused encoder layer and, before
    torch 2.13, `varlen_attn`."""
    if "torch" not in sys.modules:
        return 0.0
    from torch.utils.flop_counter import FlopCounterMode

    try:
        with FlopCounterMode(display=False, custom_mapping=_more_formulas()) as counter:
            launch()
    except Exception:
        _log.warning("the operations of a launch can't be counted", exc_info=True)
        return 0.0
    return float(counter.get_total_flops())


def _more_formulas() -> dict[Any, Callable[..., int]]:
    """Returns formulas, by operator, that torch lacks: those of the CPU."""
    from torch import ops
    from torch.utils.flop_counter import sdpa_flop_count

    def attention(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
        """Returns the operations of attention, by its shapes."""
        return int(sdpa_flop_count(q, k, v))  # type: ignore[no-untyped-call]

    formulas: dict[Any, Callable[..., int]] = {
        ops.aten._scaled_dot_product_flash_attention_for_cpu: attention
    }
    if hasattr(ops.mkldnn, "_linear_pointwise"):  # of packed weights
        formulas[ops.mkldnn._linear_pointwise] = _linear_flops
    return formulas


def _linear_flops(x: Sequence[int], weight: Sequence[int], *_: Any, **__: Any) -> int:
    """Returns the operations of x [..., n] times weight [m, n], by their shapes."""
    return 2 * prod(x) * weight[0]
