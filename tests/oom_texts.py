"""Out-of-memory messages in the wordings that public issues show; sizes are written as the allocators write them."""

from __future__ import annotations

GIB, MIB = 2.0**30, 2.0**20


def written(size_bytes: float) -> str:
    """A size as PyTorch writes it."""
    if size_bytes < 1024:
        return f"{int(size_bytes)} bytes"
    for unit, factor in (("KiB", 2.0**10), ("MiB", MIB)):
        if size_bytes < 1024 * factor:
            return f"{size_bytes / factor:.2f} {unit}"
    return f"{size_bytes / GIB:.2f} GiB"


def modern(
    tried, total, free, allocated, unallocated, *, process=None, others=(), pools=None, allowed=None, device=0, platform="CUDA",
    capacity="capacity",
):
    """PyTorch 2.1 and later."""
    used = "".join(f"Process {number} has {written(size)} memory in use. " for number, size in others)
    if process is not None:
        used += f"Including non-PyTorch memory, this process has {written(process)} memory in use. "
    limit = f"{written(allowed)} allowed; " if allowed is not None else ""
    graphs = f", with {written(pools)} allocated in private pools (e.g., CUDA Graphs)," if pools is not None else ","
    return (
        f"{platform} out of memory. Tried to allocate {written(tried)}. GPU {device} has a total {capacity} of {written(total)} of "
        f"which {written(free)} is free. {used}{limit}Of the allocated memory {written(allocated)} is allocated by PyTorch{graphs} "
        f"and {written(unallocated)} is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
        "setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )


def older(tried, total, free, allocated, unallocated, *, device=0, platform="CUDA"):
    """PyTorch 1.4 to 2.0."""
    return (
        f"{platform} out of memory. Tried to allocate {written(tried)} (GPU {device}; {written(total)} total capacity; "
        f"{written(allocated)} already allocated; {written(free)} free; {written(allocated + unallocated)} reserved in total by "
        "PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
    )


def npu(tried, total, free, allocated, unallocated, *, device=0):
    """torch_npu."""
    return (
        f"NPU out of memory. Tried to allocate {written(tried)} (NPU {device}; {written(total)} total capacity; "
        f"{written(allocated)} already allocated; {written(allocated)} current active; {written(free)} free; "
        f"{written(allocated + unallocated)} reserved in total by PyTorch) If reserved memory is >> allocated memory "
        "try setting max_split_size_mb to avoid fragmentation."
    )


CADS_4 = modern(22.78 * GIB, 31.47 * GIB, 12.73 * GIB, 9.08 * GIB, 9.35 * GIB, process=18.73 * GIB)
QWEN_240 = modern(
    124.68 * GIB, 95.22 * GIB, 51.23 * GIB, 25.50 * GIB, 3.14 * GIB, others=((608946, 14.91 * GIB), (734147, 29.07 * GIB))
)
KAITO_976 = modern(546 * MIB, 15.77 * GIB, 514.19 * MIB, 13.73 * GIB, 736.86 * MIB, others=((562167, 15.25 * GIB),), pools=46 * MIB)
TORCHTUNE_2071 = "[rank5]: torch.OutOfMemoryError: " + modern(
    1.96 * GIB, 23.43 * GIB, 210.06 * MIB, 22.41 * GIB, 206.09 * MIB, process=0, device=5
)
"""Issues murong-xu/CADS 4, QwenLM/Qwen2.5-Omni 240, kaito-project/kaito 976 and meta-pytorch/torchtune 2071, with their figures."""
