"""Where NeMo-RL's recipes keep what a layout says: the policy with one of two back ends, the cluster, the algorithm.

Source: docs/sources.md#nemo-rl.
"""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Values

MEGATRON, DTENSOR = "policy.megatron_cfg", "policy.dtensor_cfg"
"""Sections of the back ends."""
OTHER = {MEGATRON: "nemo-rl-megatron", DTENSOR: "nemo-rl-dtensor"}
"""Section -> the framework that reads it."""
PACKING, DYNAMIC, ENGINE = "policy.sequence_packing", "policy.dynamic_batching", "policy.generation.vllm_cfg"
COLOCATED = "policy.generation.colocated"
BATCH, MICRO, LOG_PROB = "policy.train_global_batch_size", "policy.train_micro_batch_size", "policy.logprob_batch_size"
LENGTH, MULTIPLE = "policy.max_total_sequence_length", "policy.make_sequence_length_divisible_by"
NODES, PER_NODE = "cluster.num_nodes", "cluster.gpus_per_node"
GENERATING = ("grpo", "ppo", "distillation")
"""Algorithms whose samples are made in each step: prompts times generations."""
PAIRED = ("dpo", "rm")
"""Algorithms of which a sample is a pair of sequences."""
ALGORITHMS = (*GENERATING, *PAIRED, "sft")


def is_tuning(case: Case) -> bool:
    """Whether supervised fine-tuning is meant; everything else that trains all weights is GRPO here."""
    return case.training.task == "sft"


def padding(layout: Layout) -> int:
    """What a packed sequence must be a multiple of: twice the context-parallel ranks, times those that cut it between layers.

    Source:  NeMo-RL 7ea279ab nemo_rl/models/megatron/data.py ``_get_pack_sequence_parameters_for_megatron``.
    """
    inner = layout.tensor_parallel if layout.sequence_parallel else 1
    return inner * (2 * layout.context_parallel if layout.context_parallel > 1 else 1)


def multiple_of(layout: Layout) -> int:
    """What NeMo-RL is told to pad sequences to: that, and tensor-parallel ranks, as its recipes have it."""
    return lcm(layout.tensor_parallel, padding(layout))


def micro_batches(case: Case, layout: Layout, *, packs: bool) -> Values:
    """The micro-batch of an update and of the passes for log-probabilities: as samples, and as the tokens of a pack.

    Both are the same, because NeMo-RL stops with four tensor-parallel ranks or more where they are not.
    """
    size, tokens = layout.microbatch_sequences, layout.microbatch_sequences * case.batch.sequence_tokens
    return {
        MICRO: size, LOG_PROB: size, f"{PACKING}.enabled": packs, f"{PACKING}.train_mb_tokens": tokens,
        f"{PACKING}.logprob_mb_tokens": tokens, f"{DYNAMIC}.enabled": False, MULTIPLE: multiple_of(layout),
    }
