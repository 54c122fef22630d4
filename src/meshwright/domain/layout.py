"""A layout: how one training step is spread over the devices. The only thing that a search may choose.

The compact label names it: ``tp8 cp1 pp4 vp2 ep1 etp1 dp16 mb1 sp zero1 recompute=full schedule=1f1b``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Schedule = Literal["1f1b", "interleaved", "gpipe", "zb1p", "dualpipev"]
ContextKind = Literal["ring", "all-gather", "ulysses", "hybrid"]
Risk = Literal["exact", "equivalent", "approximate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRecompute:
    """Keep every activation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selective:
    """Recompute named modules of every layer: core_attn, layernorm, mlp, moe_act, moe, mla_up_proj, shared_experts."""

    modules: tuple[str, ...] = ("core_attn",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Full:
    """Recompute whole layers.

    ``layers`` is None for all, k for the first k of each chunk, or one tuple per chunk with a count per stage.
    """

    layers: int | tuple[tuple[int, ...], ...] | None = None


Recompute = NoRecompute | Selective | Full


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Which communication runs beside compute. Data-parallel and point-to-point overlap keep the arithmetic exact."""

    gradient_reduce: bool = True
    parameter_gather: bool = True
    tensor: bool = False
    point_to_point: bool = True
    expert: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Every knob of a layout. Degrees are at least 1; ``data_parallel`` is the number of dense replicas.

    Sharding is three knobs: over how many ranks optimizer state, gradients and parameters are split. ZeRO-1, 2 and 3,
    HSDP and unsaturated sharding (``zero_shard_size``) are all values of the three, each a divisor of dp x cp.
    """

    tensor_parallel: int = 1
    sequence_parallel: bool = False
    context_parallel: int = 1
    context_kind: ContextKind = "ring"
    pipeline_parallel: int = 1
    virtual_stages: int = 1
    expert_parallel: int = 1
    expert_tensor_parallel: int = 1
    data_parallel: int = 1
    optimizer_shards: int = 1
    gradient_shards: int = 1
    parameter_shards: int = 1
    microbatch_sequences: int = 1
    num_microbatches: int = 1
    recompute: Recompute = NoRecompute()
    schedule: Schedule = "1f1b"
    stage_layers: tuple[tuple[int, ...], ...] | None = None
    """Layers per chunk and stage, ``[chunk][stage]``; None: as even as possible."""
    offload: tuple[str, ...] = ()
    """What is kept in host memory: optimizer."""
    overlap: Overlap = Overlap()

    @property
    def world(self) -> int:
        """Devices in use: tp x cp x pp x dp."""
        return self.tensor_parallel * self.context_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def zero_stage(self) -> int:
        """The ZeRO stage that the three shard knobs amount to (0-3)."""
        if self.parameter_shards > 1:
            return 3
        if self.gradient_shards > 1:
            return 2
        return 1 if self.optimizer_shards > 1 else 0

    @property
    def expert_data_parallel(self) -> int:
        """Replicas of an expert: world / (etp x ep x pp)."""
        return self.world // (self.expert_tensor_parallel * self.expert_parallel * self.pipeline_parallel)
