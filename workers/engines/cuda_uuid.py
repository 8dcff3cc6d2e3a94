"""CUDA devices that are named by UUID: a GPU (`GPU-…`), or a part of one (`MIG-…`).

Torch knows indices alone. A process that is to have such a device sees no other: its index is 0.
"""

from collections.abc import MutableMapping

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def is_uuid(device: str) -> bool:
    """Returns True if a device is named by its UUID."""
    return device.startswith(("GPU-", "MIG-"))


def torch_name(device: str) -> str:
    """Returns torch's name of a device, in a process that `show_only` was called for."""
    return "cuda" if is_uuid(device) else device


def show_only(device: str, environment: MutableMapping[str, str]) -> None:
    """Hides all other devices from a process that has not used CUDA yet, by its environment;
    changes nothing where the name is no UUID."""
    if is_uuid(device):
        environment[_VISIBLE] = device
