"""What NeMo-RL refuses of any plan, in its own words, and what no file written here can say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.nemo_rl.keys import multiple_of
from meshwright.frameworks.rules import Rule, values_if
from meshwright.frameworks.verl.batch import longest_tokens, samples_of

if TYPE_CHECKING:
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.planned import Planned


def _batch(plan: Planned) -> Values | None:
    samples = samples_of(plan.case)
    return values_if(samples % plan.dp, samples=samples)


def _batch_of_rank(plan: Planned) -> Values | None:
    batch = plan.batch // plan.dp
    return values_if(batch != plan.mb * plan.microbatches, batch=batch, size=plan.mb, count=plan.microbatches)


def _bins(plan: Planned) -> Values | None:
    multiple, capacity = multiple_of(plan.layout), plan.mb * plan.sequence
    tokens = -(-longest_tokens(plan.case) // multiple) * multiple
    packed = plan.case.batch.packing is not None or plan.cp > 1
    return values_if(packed and tokens > capacity, tokens=tokens, capacity=capacity)


SHARED = (
    Rule("task", "NeMo-RL's adapters are not written here: plan all weights, or LoRA with --framework bridge or accelerate",
         lambda plan: plan.task == "lora", "never", "training"),
    Rule("device", "NeMo-RL's files are written for NVIDIA GPUs here, not for {device}",
         lambda plan: plan.case.cluster.device.family in {"ascend", "cpu", "cdna3", "cdna4"}, "never", "cluster"),
    Rule("optimizer", "NeMo-RL's files are written with AdamW, not with {optimizer}", lambda plan: plan.optimizer != "adamw",
         "never", "training"),
    Rule("mtp", "the {count} layers of multi-token prediction of {model} are left out (mtp_num_layers: 0 of its recipes): plan the "
         "model without them",
         lambda plan: values_if(plan.case.model.num_mtp_layers, count=plan.case.model.num_mtp_layers), "never", "model"),
    Rule("tower", "{model} with its vision tower is not written for NeMo-RL", lambda plan: plan.case.model.tower is not None,
         "never", "model"),
    Rule("batch", "Batch size ({samples}) is not a multiple of shards ({dp})", _batch, "step"),
    Rule("microbatch", "{count} micro-batches of {size} are not the {batch} sequences of a replica", _batch_of_rank, "step"),
    Rule("bins", "Sequence length {tokens} exceeds bin capacity {capacity}", _bins, "step"),
)
"""Rules of both back ends."""
