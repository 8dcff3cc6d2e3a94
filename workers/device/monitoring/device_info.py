"""Name and memory of a worker's device, without loading torch."""

import os
import sys
from pathlib import Path
from typing import Any

from jobs.settings import Settings
from workers.engines import cuda_uuid

_PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes


def device_name(settings: Settings) -> str:
    """Returns the device's name in torch's terms: "cuda", "cuda:1", "cpu" …"""
    return cuda_uuid.torch_name(settings.device) or (
        "cuda" if Path("/dev/nvidiactl").exists() else "cpu"
    )


def device_kind(device: str) -> str:
    """Returns what a device is: a GPU's product name, once it is in use; "cpu"; else its name."""
    torch: Any = sys.modules.get("torch")
    if torch and device.startswith("cuda") and torch.cuda.is_initialized():
        return str(torch.cuda.get_device_name(torch.device(device)))
    return device


def device_memory(device: str) -> tuple[int, int]:
    """Returns (used, total) bytes; for a CPU, those of this process and of the machine."""
    torch: Any = sys.modules.get("torch")
    if torch and device.startswith("cuda") and torch.cuda.is_initialized():
        free, total = torch.cuda.mem_get_info(torch.device(device))
        return total - free, total
    used = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    return used, os.sysconf("SC_PHYS_PAGES") * _PAGE
