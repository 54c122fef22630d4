"""What DeepSpeed's JSON says, for every framework that takes one: stages, shard groups, batch, precision."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.documents.source import UNKNOWN
from meshwright.frameworks.compose import zero_shards

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.documents.source import Source
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.compose import Values

ZERO = "zero_optimization"
BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
AUTO = "auto"
"""Filled in by the Hugging Face Trainer or accelerate; DeepSpeed itself drops it where it knows it and crashes where not."""
OPTIMIZERS = {"adam": "adamw", "adamw": "adamw", "fusedadam": "adamw", "sgd": "sgd", "muon": "muon"}
"""``optimizer.type`` in small letters -> optimizer of the catalogue."""


def without_auto(source: Source) -> Source:
    """The source with ``"auto"`` as what it is: known only when the job runs."""
    settings = {
        key: replace(setting, value=UNKNOWN) if setting.value == AUTO and not key.startswith("-") else setting
        for key, setting in source.settings.items()
    }
    return replace(source, settings=settings)


def quiet(values: Values, key: str) -> object:
    """A value that is not missed where it is only known when the job runs."""
    return None if values.source.value(key) is UNKNOWN else values.get(key)


def stage_of(values: Values) -> int:
    """The ZeRO stage; ``zero_optimization: true`` is the first."""
    if values.source.value(ZERO) is True:
        return 1
    return values.int(f"{ZERO}.stage", 0) or 0


def shards_of(values: Values, ranks: int) -> Mapping[str, int]:
    """The three shard groups over ``ranks``: a MiCS group is all of them, an hpZ group only that of the weights."""
    stage = stage_of(values)
    mics, hpz = (values.int(f"{ZERO}.{key}") or 0 for key in ("mics_shard_size", "zero_hpz_partition_size"))
    if stage == 3 and mics > 0:
        return zero_shards(3, mics)
    if stage == 3 and hpz > 1:
        return {"optimizer_shards": ranks, "gradient_shards": ranks, "parameter_shards": hpz}
    return zero_shards(stage, ranks)


def with_shards(layout: Layout, shards: Mapping[str, int]) -> Layout:
    """A layout with the three shard groups of ``shards_of``."""
    return replace(
        layout, optimizer_shards=shards["optimizer_shards"], gradient_shards=shards["gradient_shards"],
        parameter_shards=shards["parameter_shards"],
    )


def offload_of(values: Values) -> tuple[str, ...]:
    """What stands in host memory: the optimizer, where a stage shards it."""
    device = values.text(f"{ZERO}.offload_optimizer.device", "none")
    legacy = values.bool(f"{ZERO}.cpu_offload")
    return ("optimizer",) if stage_of(values) and (device != "none" or legacy) else ()


def overlaps_of(values: Values) -> bool:
    """Whether gradients are reduced beside the backward pass; stage 3 does unless told otherwise."""
    stage = stage_of(values)
    return stage > 0 and values.bool(f"{ZERO}.overlap_comm", stage == 3)


def precision_of(values: Values) -> str | None:
    """bf16 or fp16; None where it is FP32 or decided elsewhere."""
    if quiet(values, "bf16.enabled") is True or quiet(values, "bfloat16.enabled") is True:
        return "bf16"
    return "fp16" if quiet(values, "fp16.enabled") is True else None


def gradient_dtype_of(values: Values) -> str | None:
    """The data type that gradients accumulate in, where it is said: ``bf16`` is any of two bytes."""
    return {"fp32": "fp32", "bf16": "bf16", "fp16": "bf16"}.get(values.text("data_types.grad_accum_dtype"))


def optimizer_of(values: Values) -> str | None:
    """The optimizer of the catalogue that the JSON names."""
    return OPTIMIZERS.get(values.text("optimizer.type").lower())


class BatchSaid(Struct, frozen=True, kw_only=True):
    """The three batch keys as DeepSpeed completes them; None where even that leaves one open."""

    batch: int | None
    microbatch: int | None
    accumulation: int | None


def batch_of(values: Values, dp: int | None) -> BatchSaid:
    """The batch keys, the missing ones completed as ``_set_batch_related_parameters`` does it (floor divisions)."""
    batch, micro, steps = (quiet(values, key) for key in BATCH_KEYS)
    batch, micro, steps = (value if isinstance(value, int) and value > 0 else None for value in (batch, micro, steps))
    if batch and micro and dp and steps is None:
        steps = batch // micro // dp
    elif batch and steps and dp and micro is None:
        micro = batch // dp // steps
    elif batch and dp and micro is None and steps is None:
        micro, steps = batch // dp, 1
    elif micro and batch is None:
        steps = steps or 1
        batch = micro * steps * dp if dp else None
    return BatchSaid(batch=batch, microbatch=micro or None, accumulation=steps or None)


def data_parallel_said(values: Values) -> int | None:
    """Replicas from the three batch keys, where all of them stand there and divide."""
    batch, micro, steps = (quiet(values, key) for key in BATCH_KEYS)
    if not (isinstance(batch, int) and isinstance(micro, int) and isinstance(steps, int) and micro > 0 and steps > 0):
        return None
    return batch // (micro * steps) if batch % (micro * steps) == 0 and batch > 0 else None
