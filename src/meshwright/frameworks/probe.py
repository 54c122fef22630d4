"""A smaller run of a plan: one node, fewer layers, no pipeline. Its peak of memory anchors the plan's estimate.

Frameworks that can pretend to be one rank of a large job (a fake process group, a simulation level) write a better probe
of their own; this one works everywhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.catalog import cluster_for, shrink
from meshwright.domain.layout import Full, Layout, whole
from meshwright.domain.training import Batch
from meshwright.estimate import estimate
from meshwright.frameworks.manual import devices_per_node

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Framework

MICROBATCHES = 2
"""Enough that gradients of one micro-batch live beside the activations of the next."""


def smaller(framework: Framework, case: Case, layout: Layout) -> tuple[Case, Layout] | None:
    """A case and a layout of one node that the framework runs, with as many layers as fit; None where not even one does.

    Tensor, context and expert parallelism, micro-batch, sequence, recomputation and ZeRO stage stay as they are; the pipeline is
    left out and data parallelism fills the node.
    """
    devices = devices_per_node(layout.world, case.cluster.devices_per_node)
    replica = layout.tensor_parallel * layout.context_parallel
    if devices % replica or layout.expert_parallel * layout.expert_tensor_parallel > devices:
        return None
    dp = devices // replica
    ranks = dp * layout.context_parallel
    small = replace(
        layout, pipeline_parallel=1, virtual_stages=1, data_parallel=dp, num_microbatches=MICROBATCHES, schedule="1f1b",
        stage_layers=None, recompute=Full() if isinstance(layout.recompute, Full) else whole(layout.recompute),
        optimizer_shards=ranks if layout.optimizer_shards > 1 else 1, gradient_shards=ranks if layout.gradient_shards > 1 else 1,
        parameter_shards=ranks if layout.parameter_shards > 1 else 1,
    )
    if ranks == 1:  # nothing to reduce or to gather, which some frameworks refuse to do beside compute
        small = replace(small, overlap=replace(small.overlap, parameter_gather=False))
    fullest = max(case.model.num_layers // layout.pipeline_parallel, 1)
    for layers in range(min(fullest, case.model.num_layers), 0, -1):
        there = replace(
            case, model=shrink(case.model, layers),
            cluster=cluster_for(case.cluster.device.name, num_devices=devices, devices_per_node=case.cluster.devices_per_node),
            batch=Batch(
                global_batch_sequences=dp * layout.microbatch_sequences * MICROBATCHES,
                sequence_tokens=case.batch.sequence_tokens,
                mean_square_document_tokens=case.batch.mean_square_document_tokens,
            ),
        )
        if not framework.check(there, small) and estimate(there, small).fits:
            return there, small
    return None
