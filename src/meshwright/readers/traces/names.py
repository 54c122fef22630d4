"""What categories and names of events mean, in every spelling since 2021."""

from __future__ import annotations

import re
from typing import Final

COMPUTE, COMMUNICATION, MEMCPY, MEMSET = range(4)
KINDS: Final = ("compute", "communication", "memcpy", "memset")

DEVICE_CATEGORIES: Final = {
    "kernel": COMPUTE, "Kernel": COMPUTE, "concurrent_kernel": COMPUTE, "mtia_ccp_events": COMPUTE, "hpu_op": COMPUTE,
    "collective_comm": COMMUNICATION,
    "gpu_memcpy": MEMCPY, "Memcpy": MEMCPY, "gpu_memset": MEMSET, "Memset": MEMSET,
}
"""Category -> what it does on the device; ``cuda_sync`` and ``gpu_user_annotation`` stand on its streams and do nothing."""
LAUNCH_CATEGORIES: Final = frozenset((
    "cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "xpu_driver", "mtia_runtime", "glow_runtime", "privateuse1_runtime",
    "privateuse1_driver",
))
ANNOTATION_ON_DEVICE: Final = "gpu_user_annotation"
KNOWN_CATEGORIES: Final = frozenset(DEVICE_CATEGORIES) | LAUNCH_CATEGORIES | frozenset((
    "", ANNOTATION_ON_DEVICE, "cpu_op", "Operator", "user_annotation", "python_function", "overhead", "Trace", "ac2g", "async",
    "async_gpu", "async_cpu_to_gpu", "fwdbwd", "cuda_sync", "cuda_event", "cpu_instant_event", "external_correlation",
    "cuda_profiler_range", "gpu_pm_counter", "mtia_insight", "mtia_counters", "mtia_workloadd",
))

COMMUNICATES: Final = re.compile(r"nccl|rccl|hccl|hcom_|msccl|nvshmem|deep_?ep|rocshmem", re.IGNORECASE)
STEP: Final = re.compile(r"ProfilerStep\s?#\s?(\d{1,15})")

HOST: Final = (
    ("step", STEP),
    ("collective", re.compile(r"^(?:record_param_comms|c10d::|nccl:|hccl:)")),
    ("gloo", re.compile(r"^gloo:")),
    ("dataloader", re.compile(
        r"^enumerate\(DataLoader\)|DataLoader(?:Iter)?[.#:_]*__next__|dataloader\.py\(\d+\): __next__", re.IGNORECASE)),
    ("sync", re.compile(
        r"^(?:cu|cuda|hip|musa|aclrt|AscendCL@aclrt)(?:Device|Stream|Event|Ctx)?Synchronize|^(?:cuda|hip)Memcpy$")),
    ("gc", re.compile(r"^Python GC\b|\bgc[:. ]*collect|garbage.?collect", re.IGNORECASE)),
    ("checkpoint", re.compile(
        r"(?:save|load)_?checkpoint|checkpoint[_ .:/]*(?:save|load|write)|torch/serialization\.py|\btorch\.save\b"
        r"|distributed/checkpoint/|\bdcp[_.](?:async_)?(?:save|load)", re.IGNORECASE)),
    ("compile", re.compile(
        r"convert_frame\.py\(\d+\): _?compile|\bcompile_fx\b|entire_frame_compile|backend_compile|inductor_compile"
        r"|triton/compiler/compiler\.py|TorchDynamo compile|\baot_compile", re.IGNORECASE)),
)
"""Class of what the host does -> names of its events. What recomputes activations is called a checkpoint, too, and is none here."""
CLASSES: Final = tuple(name for name, _ in HOST)


def host_class(name: str) -> int:
    """The place in ``HOST`` of what an event on the host is, or -1."""
    return next((index for index, (_, pattern) in enumerate(HOST) if pattern.search(name)), -1)


_OPERATIONS: Final = (
    ("all-reduce", "allreduce"), ("all-gather", "allgather"), ("reduce-scatter", "reducescatter"), ("all-to-all", "alltoall"),
    ("broadcast", "broadcast"), ("send-recv", "sendrecv"), ("send-recv", "send"), ("send-recv", "recv"), ("reduce", "reduce"),
    ("gather", "gather"), ("scatter", "scatter"), ("barrier", "barrier"), ("all-to-all", "dispatch"), ("all-to-all", "combine"),
)


OPERATIONS: Final = tuple(dict.fromkeys(name for name, _ in _OPERATIONS))


def operation(text: str) -> str:
    """The operation that a collective's or a kernel's name says, or nothing.

    >>> operation("_reduce_scatter_base"), operation("ncclDevKernel_SendRecv(ncclArgs)"), operation("ncclDevKernel_Generic(x)")
    ('reduce-scatter', 'send-recv', '')
    """
    plain = text.partition("(")[0].lower().replace("_", "").replace("-", "")
    return next((name for name, word in _OPERATIONS if word in plain), "")


_ELEMENT_BYTES: Final = (
    (8, ("double", "float64", "long", "int64", "uint64", "complexfloat")), (2, ("half", "bfloat16", "float16", "short", "int16")),
    (1, ("byte", "char", "bool", "int8", "uint8")), (4, ("float", "int", "int32", "uint32", "float32")),
)


def element_bytes(dtype: str) -> int:
    """Bytes of an element of a type as profilers spell it; 0 where it is not known.

    >>> element_bytes("BFloat16"), element_bytes("Float8_e4m3fn"), element_bytes("Float"), element_bytes("")
    (2, 1, 4, 0)
    """
    plain = dtype.lower()
    return 1 if plain.startswith("float8") else next((size for size, words in _ELEMENT_BYTES if plain in words), 0)
