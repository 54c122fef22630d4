"""Accelerators that PyTorch reaches on this machine."""

from __future__ import annotations


def count_devices() -> int:
    """How many there are; none where PyTorch is built without them."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def device_name() -> str:
    """Name of the first, as the driver says it; empty where there is none."""
    import torch

    return torch.cuda.get_device_name(0) if count_devices() else ""
