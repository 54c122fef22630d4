"""What verl refuses of any plan, in its own words, and what no file written here can say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.rules import Rule, values_if
from meshwright.frameworks.verl.batch import longest_tokens, samples_of

if TYPE_CHECKING:
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.planned import Planned


def _precision(plan: Planned) -> bool:
    precision = plan.case.training.precision
    return precision.name != "bf16" or (precision.gradient_bytes, precision.master_bytes) != (4.0, 4.0)


def _mini_batch(plan: Planned) -> Values | None:
    samples = samples_of(plan.case)
    return values_if(samples % plan.dp, samples=samples)


def _batch_of_rank(plan: Planned) -> Values | None:
    batch = plan.batch // plan.dp
    return values_if(batch != plan.mb * plan.microbatches, batch=batch, size=plan.mb, count=plan.microbatches)


def _longest(plan: Planned) -> Values | None:
    tokens = longest_tokens(plan.case)
    return values_if(tokens > plan.mb * plan.sequence, tokens=tokens, limit=plan.mb * plan.sequence)


SHARED = (
    Rule("task", "verl's adapters are not written here: plan all weights, or LoRA with --framework bridge or accelerate",
         lambda plan: plan.task == "lora", "never", "training"),
    Rule("device", "verl's files are written for NVIDIA GPUs here, not for {device}",
         lambda plan: plan.case.cluster.device.family in {"ascend", "cpu"}, "never", "cluster"),
    Rule("precision", "verl computes in bf16 with gradients and master weights in fp32 here, not in {precision} with gradients in "
         "{gradients}", _precision, "never", "training"),
    Rule("optimizer", "verl's files are written with AdamW, not with {optimizer}", lambda plan: plan.optimizer != "adamw", "never",
         "training"),
    Rule("mtp", "the {count} layers of multi-token prediction of {model} are left out unless model.mtp.enable builds them, which "
         "is not written here: plan the model without them",
         lambda plan: values_if(plan.case.model.num_mtp_layers, count=plan.case.model.num_mtp_layers), "never", "model"),
    Rule("mini-batch", "Got mini_batch_size={samples} and self.engine.get_data_parallel_size()={dp}: the samples of an optimizer "
         "step must be a multiple of the replicas", _mini_batch, "step"),
    Rule("microbatch", "{count} micro-batches of {size} are not the {batch} sequences of a replica", _batch_of_rank, "step"),
    Rule("longest", "max_token_len must be greater than the sequence length. Got max_token_len={limit} and max_seq_len={tokens}",
         _longest, "step"),
)
"""Rules of both back ends."""
