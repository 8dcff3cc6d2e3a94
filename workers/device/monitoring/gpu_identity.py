"""NVML's handle of the GPU that torch calls "cuda:1": CUDA and NVML number devices differently.

CUDA_VISIBLE_DEVICES hides, reorders and names devices by UUID, and CUDA puts the fastest first;
NVML numbers all of the machine by PCI bus. Nothing here initializes CUDA.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from workers.engines import cuda_uuid


def handle_of(nvml: Any, device: str, environment: Mapping[str, str] = os.environ) -> Any | None:
    """Returns the handle of a GPU, or of a part of one (MIG); None while it can't be told for sure.

    nvml: the module pynvml, initialized; device: in torch's terms. In order: the UUID that
    CUDA_VISIBLE_DEVICES gives; the UUID or PCI address that torch knows once it has initialized
    CUDA; the only GPU of the machine; the index, where CUDA is told to number by PCI bus.
    """
    index = int(device.partition(":")[2] or 0)
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    names = None if visible is None else [name.strip() for name in visible.split(",")]
    if names is not None and index >= len(names):
        return None
    name = str(index) if names is None else names[index]
    if cuda_uuid.is_uuid(name) and (found := _get(nvml, "nvmlDeviceGetHandleByUUID", name)):
        return found
    for how, key in (*_by_torch(index), *_by_number(nvml, name, environment)):
        found = _get(nvml, how, key)
        if found is not None and not _is_divided(nvml, found):
            return found
    return None


def _by_torch(index: int) -> Iterator[tuple[str, str]]:
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)  # None amid its import too
    is_initialized = getattr(cuda, "is_initialized", None)
    if is_initialized is None or not is_initialized():
        return
    its = cuda.get_device_properties(index)
    if uuid := str(getattr(its, "uuid", "")):
        for kind in ("GPU", "MIG"):
            yield "nvmlDeviceGetHandleByUUID", f"{kind}-{uuid}"
    if hasattr(its, "pci_bus_id") and hasattr(its, "pci_device_id"):
        domain = getattr(its, "pci_domain_id", 0)
        address = f"{domain:08x}:{its.pci_bus_id:02x}:{its.pci_device_id:02x}.0"
        yield "nvmlDeviceGetHandleByPciBusId", address


def _by_number(nvml: Any, name: str, environment: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    if not name.isdecimal():
        return
    if environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        yield "nvmlDeviceGetHandleByIndex", int(name)
    elif int(name) == 0 and _get(nvml, "nvmlDeviceGetCount") == 1:
        yield "nvmlDeviceGetHandleByIndex", 0


def _is_divided(nvml: Any, handle: Any) -> bool:
    """Returns True for a GPU in MIG mode: the device is a part of it, and it isn't known which."""
    is_part = _get(nvml, "nvmlDeviceIsMigDeviceHandle", handle)  # a ctypes.c_uint
    if is_part is not None and is_part.value:
        return False
    modes = _get(nvml, "nvmlDeviceGetMigMode", handle)
    return modes is not None and modes[0] == nvml.NVML_DEVICE_MIG_ENABLE


def _get(nvml: Any, function: str, *arguments: Any) -> Any | None:
    try:
        return getattr(nvml, function)(*arguments)
    except nvml.NVMLError:
        return None
