"""Whether a layout does what a rule of the guides says, and whether its framework could; for ``explain`` and ``check`` alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from meshwright.domain.kernels import running
from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.judging.neighbours import OFF
from meshwright.judging.questions import GUIDED, START_PARAMETERS
from meshwright.perf.parameters import total_parameters

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout

Follows: TypeAlias = "Callable[[Case, Layout], bool | None]"
"""True: the layout does what the rule says; False: it does not; None: the rule is not about it."""

SMALL_CLUSTER_NODES = 8
"""Nodes up to which a cluster is a small one, of which the guide says that data parallelism comes first."""


def _by_size(case: Case, layout: Layout) -> bool:
    """The guide's table of tensor parallelism by parameters (003:44)."""
    size = total_parameters(case.model)
    wanted = (1,) if size <= 10e9 else (2, 3, 4) if size <= 50e9 else (8,)
    return layout.tensor_parallel in wanted and not 50e9 < size < 100e9


def _near_start(case: Case, layout: Layout) -> bool:
    """Parameters a device by the guide's measure (001:29) within a factor of three of 4 B."""
    each = total_parameters(case.model) / guided_parts(case, layout)
    return 1.0 / GUIDED["guided-3"] <= each / START_PARAMETERS <= GUIDED["guided-3"]


def guided_parts(case: Case, layout: Layout) -> int:
    """What ChatLearn's guide divides the parameters by: TP x PP of a dense model, ETP x EP of a mixture of experts."""
    if case.model.is_moe:
        return layout.expert_parallel * layout.expert_tensor_parallel
    return layout.tensor_parallel * layout.pipeline_parallel


def _data_parallel_first(case: Case, layout: Layout) -> bool:
    tp, pp = layout.tensor_parallel, layout.pipeline_parallel
    if case.cluster.num_nodes <= SMALL_CLUSTER_NODES:
        return tp * pp * layout.context_parallel * layout.expert_parallel == 1
    return tp > 1 and pp > 1


def _one_technique(layout: Layout) -> bool:
    degrees = (layout.tensor_parallel, layout.pipeline_parallel, layout.context_parallel, layout.expert_parallel)
    return sum(degree > 1 for degree in degrees) <= 1


def _middle(layout: Layout) -> bool:
    """TP 8 with PP, TP 8 with ZeRO-3, or ZeRO-3 alone."""
    eight, three = layout.tensor_parallel == 8, layout.zero_stage == 3
    alone = layout.tensor_parallel * layout.context_parallel * layout.pipeline_parallel == 1
    return (eight and (layout.pipeline_parallel > 1 or three)) or (three and alone)


FOLLOWS: Mapping[str, Follows] = {
    "chatlearn.context-from-8192": lambda c, x: x.context_parallel > 1 if c.batch.sequence_tokens >= 8192 else None,
    "chatlearn.tensor-inside-node": lambda c, x: x.tensor_parallel <= c.cluster.devices_per_node,
    "chatlearn.pipeline-below-microbatches": lambda c, x: (
        x.pipeline_parallel < x.num_microbatches if x.pipeline_parallel > 1 else None
    ),
    "chatlearn.pipeline-cheap-for-large-batch": lambda c, x: x.pipeline_parallel > 1,
    "chatlearn.expert-before-expert-tensor": lambda c, x: x.expert_tensor_parallel == 1 if c.model.is_moe else None,
    "chatlearn.experts-for-moe": lambda c, x: x.expert_parallel > 1 if c.model.is_moe else None,
    "chatlearn.four-billion-start": _near_start,
    "chatlearn.pipeline-for-large-batch": lambda c, x: (
        x.pipeline_parallel > 1 if c.batch.global_batch_sequences >= x.world else x.pipeline_parallel == 1
    ),
    "chatlearn.virtual-one-or-two": lambda c, x: x.virtual_stages <= 2 if x.pipeline_parallel > 1 else None,
    "chatlearn.micro-batch-one": lambda c, x: x.microbatch_sequences == 1,
    "chatlearn.overlap-helps": lambda c, x: x.overlap != OFF,
    "chatlearn.overlap-off-first": lambda c, x: not (x.overlap.gradient_reduce or x.overlap.parameter_gather),
    "chatlearn.recompute-for-minimal-machines": lambda c, x: isinstance(x.recompute, NoRecompute),
    "chatlearn.selective-is-cheap": lambda c, x: isinstance(x.recompute, Selective),
    "chatlearn.full-saves-most": lambda c, x: isinstance(x.recompute, Full),
    "mindspore.micro-batch-two": lambda c, x: x.microbatch_sequences == 2,
    "mindspore.virtual-pipeline": lambda c, x: x.virtual_stages > 1,
    "mindspore.recompute-off-if-memory": lambda c, x: isinstance(x.recompute, NoRecompute),
    "mindspore.unsaturated-sharding": lambda c, x: 1 < x.optimizer_shards < x.data_parallel * x.context_parallel,
    "mindspore.distributed-optimizer": lambda c, x: x.zero_stage >= 1 if x.data_parallel > 1 else None,
    "megatron.tensor-range": lambda c, x: x.tensor_parallel in (2, 4, 8),
    "megatron.pipeline-range": lambda c, x: x.pipeline_parallel <= 16,
    "megatron.tensor-by-size": _by_size,
    "megatron.micro-batch-above-stages": lambda c, x: x.microbatch_sequences > x.pipeline_parallel > 1,
    "megatron.micro-batch-sixteen": lambda c, x: x.microbatch_sequences == 16,
    "megatron.sequence-parallel": lambda c, x: x.sequence_parallel if x.tensor_parallel > 1 else None,
    "megatron.flash-attention": lambda c, x: running(c, x).implementation.flash_attention,
    "megatron.zero-three": lambda c, x: x.zero_stage == 3,
    "megatron.overlap-comm": lambda c, x: x.overlap.gradient_reduce if x.data_parallel > 1 else None,
    "megatron.partition-activations": lambda c, x: False,
    "megatron.zero-three-under-pipeline": lambda c, x: x.zero_stage == 3 and x.pipeline_parallel > 1,
    "megatron.zero-three-when-short": lambda c, x: x.zero_stage == 3,
    "megatron.selective-recommended": lambda c, x: isinstance(x.recompute, Selective),
    "megatron.ring-million": lambda c, x: x.context_parallel > 1,
    "megatron.small-clusters-data-parallel": _data_parallel_first,
    "playbook.small-one-technique": lambda c, x: _one_technique(x),
    "playbook.small-full-recompute": lambda c, x: isinstance(x.recompute, Full) if total_parameters(c.model) < 10e9 else None,
    "playbook.middle-options": lambda c, x: _middle(x),
    "playbook.pure-data-parallel-512": lambda c, x: x.data_parallel < x.world if x.world >= 512 else None,
    "playbook.zero-two-with-pipeline-1024": lambda c, x: (
        x.tensor_parallel == 8 and x.zero_stage == 2 and x.pipeline_parallel > 1 if x.world >= 1024 else None
    ),
    "playbook.context-across-nodes": lambda c, x: x.tensor_parallel * x.context_parallel > c.cluster.scale_up_devices,
    "playbook.experts-across-nodes": lambda c, x: x.expert_parallel * x.expert_tensor_parallel > c.cluster.scale_up_devices,
    "playbook.poor-full-recompute": lambda c, x: isinstance(x.recompute, Full),
    "playbook.poor-accumulation": lambda c, x: x.num_microbatches > 1,
    "playbook.batch-up-context": lambda c, x: x.context_parallel > 1,
    "playbook.tensor-to-node": lambda c, x: x.tensor_parallel > 1 and 2 * x.tensor_parallel > c.cluster.devices_per_node,
    "playbook.data-parallel-zero-three": lambda c, x: x.zero_stage == 3,
    "playbook.data-parallel-bottleneck": lambda c, x: False,
}
"""Rule -> whether a layout follows it; rules that are about anything else (metrics, flags, figures of a run) are not here.

Two are ``False`` for every layout: no layout partitions activations beside sequence parallelism, and the rule on the bottleneck
of data parallelism is judged only where more stages than the layout has are meant.
"""

ABLE: Mapping[str, Callable[[Features], bool]] = {
    "mindspore.distributed-optimizer": lambda features: 1 in features.zero_stages,
    "mindspore.unsaturated-sharding": lambda features: features.partial_sharding,
    "megatron.sequence-parallel": lambda features: features.sequence_parallel,
    "megatron.overlap-comm": lambda features: "grad" in features.overlaps,
    "megatron.zero-three": lambda features: 3 in features.zero_stages,
    "chatlearn.context-from-8192": lambda features: features.context_parallel,
    "chatlearn.experts-for-moe": lambda features: features.expert_parallel,
    "chatlearn.overlap-helps": lambda features: bool(features.overlaps),
    "chatlearn.overlap-off-first": lambda features: len(features.overlaps) > 1,
    "chatlearn.selective-is-cheap": lambda features: "selective" in features.recompute,
    "chatlearn.full-saves-most": lambda features: "full" in features.recompute,
    "megatron.selective-recommended": lambda features: "selective" in features.recompute,
    "playbook.poor-full-recompute": lambda features: "full" in features.recompute,
    "playbook.zero-two-with-pipeline-1024": lambda features: 2 in features.zero_stages,
}
"""Rule -> whether a framework could follow it at all; one that is not here every framework could."""


def able(rule: str, features: Features) -> bool:
    """Whether a framework could do what a rule says."""
    judge = ABLE.get(rule)
    return judge is None or judge(features)


def follows(rule: str, case: Case, layout: Layout, features: Features) -> bool | None:
    """Whether a layout does what a rule says; None where the rule is about something else, or its framework could not."""
    judge = FOLLOWS.get(rule)
    return judge(case, layout) if judge is not None and able(rule, features) else None
