"""One published run in the product's units, as the index of fastest runs holds it."""

from __future__ import annotations

from meshwright.value import Value


class Published(Value, frozen=True, kw_only=True):
    """One run that someone published; None where the source does not say. Fields are the columns of ``fastest_runs.json``."""

    id: str
    source: str
    framework: str
    framework_version: str
    family: str
    model: str
    parameters: int | None
    active_parameters: int | None
    """Of a mixture of experts: parameters that one token meets; else ``parameters``."""
    is_moe: bool
    layers: int | None
    hidden: int | None
    device: str
    """By the catalogue's name; as the source spells it where the catalogue has no such device (its family is blank then)."""
    device_family: str
    devices: int | None
    devices_per_node: int | None
    precision: str
    task: str
    sequence_tokens: int | None
    global_batch_sequences: int | None
    label: str
    """The layout in the words of the label, as far as the source says it; empty where nothing of the cell ran."""
    data_parallel: int | None
    num_microbatches: int | None
    """Gradient accumulation steps."""
    recompute: str
    tokens_per_s_per_device: float | None
    step_s: float | None
    mfu_ratio: float | None
    """By our convention, whatever the source's: causal half of attention, no recompute, over the GEMM precision's dense peak."""
    memory_bytes: int | None
    memory_kind: str
    """What was read off: allocated peak, reserved peak, device total, unknown."""
