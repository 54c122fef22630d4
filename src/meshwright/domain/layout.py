"""A layout: how one training step is spread over the devices. The only thing that a search may choose.

The compact label names it: ``tp8 cp1 pp4 vp2 ep1 etp1 dp16 mb1 sp zero1 recompute=full schedule=1f1b``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterable

Schedule = Literal["1f1b", "interleaved", "gpipe", "zb1p", "dualpipev"]
ContextKind = Literal["ring", "all-gather", "ulysses", "hybrid"]
Risk = Literal["exact", "equivalent", "approximate"]
AttentionKernel = Literal["flash", "fused", "math"]
"""FlashAttention; the fused kernel of cuDNN; products and a softmax over a score matrix in memory."""
Grid = tuple[tuple[int, ...], ...]
"""Layers by chunk and stage, ``[chunk][stage]``."""


class NoRecompute(Value, frozen=True, kw_only=True):
    """Keep every activation."""


class Selective(Value, frozen=True, kw_only=True):
    """Recompute named modules of every layer: core_attn, layernorm, mlp, mlp_act, comm, moe_act, moe, mla_up_proj, ..."""

    modules: tuple[str, ...] = ("core_attn",)


class Full(Value, frozen=True, kw_only=True):
    """Recompute whole layers.

    ``layers`` is None for all, k for the first k of each chunk, or one tuple per chunk with a count per stage.
    """

    layers: int | Grid | None = None


Treatment = NoRecompute | Selective | Full
"""What one layer does with its activations; ``Full()`` without counts."""


class Mixed(Value, frozen=True, kw_only=True):
    """Layers of one pipeline treated differently: how many of each chunk and stage have each treatment; what is left is kept.

    Holds:   at least one part, no treatment twice, ``Full()`` without counts of its own, in the order of ``ordered_parts``; a chunk
             recomputes no more layers than it has. What a plain treatment can say is none (``mixed`` sees to both).
    """

    parts: tuple[tuple[Selective | Full, Grid], ...]

    @property
    def counts(self) -> Grid:
        """Layers of each chunk and stage that recompute anything."""
        grids = [counts for _, counts in self.parts]
        return tuple(tuple(map(sum, zip(*rows, strict=False))) for rows in zip(*grids, strict=False))


Recompute = NoRecompute | Selective | Full | Mixed


def ordered_parts(parts: Iterable[tuple[Selective | Full, Grid]]) -> tuple[tuple[Selective | Full, Grid], ...]:
    """Parts in their normal order: full first, then by the number of modules, most first; without those that count nothing."""

    def named(treatment: Selective | Full) -> Selective | Full:
        return Selective(modules=tuple(sorted(set(treatment.modules)))) if isinstance(treatment, Selective) else treatment

    def place(part: tuple[Selective | Full, Grid]) -> tuple[bool, int, tuple[str, ...]]:
        modules = part[0].modules if isinstance(part[0], Selective) else ()
        return isinstance(part[0], Selective), -len(modules), modules

    return tuple(sorted(((named(treatment), counts) for treatment, counts in parts if any(map(any, counts))), key=place))


def whole(recompute: Recompute) -> Treatment:
    """What all layers have where counts by chunk and stage no longer mean anything: the most that any of them recomputed."""
    match recompute:
        case Full(layers=tuple()):
            return Full()
        case Mixed(parts=parts):
            return parts[0][0]
        case _:
            return recompute


def full_of(counts: Grid, split: Grid) -> NoRecompute | Full:
    """Fully recomputed layers by chunk and stage as a layout says them: none, all, the first few of each chunk, or the counts."""
    most = max((count for chunk in counts for count in chunk), default=0)
    if most == 0:
        return NoRecompute()
    capped = tuple(tuple(map(min, chunk, row)) for chunk, row in zip(counts, split, strict=False))
    if capped == split:
        return Full()
    if counts == tuple(tuple(min(most, layers) for layers in row) for row in split):
        return Full(layers=most)
    return Full(layers=counts)


def mixed(parts: Iterable[tuple[Selective | Full, Grid]], split: Grid) -> Recompute:
    """Counts of each treatment by chunk and stage as the plainest value that says them.

    Shapes:  counts and ``split`` are ``[chunk][stage]``.
    """
    some = ordered_parts(parts)
    match some:
        case ():
            return NoRecompute()
        case ((Full(), counts),):
            return full_of(counts, split)
        case ((Selective() as treatment, counts),) if counts == split:
            return treatment
        case _:
            return Mixed(parts=some)


class Overlap(Value, frozen=True, kw_only=True):
    """Which communication runs beside compute. Data-parallel and point-to-point overlap keep the arithmetic exact."""

    gradient_reduce: bool = True
    parameter_gather: bool = True
    tensor: bool = False
    point_to_point: bool = True
    expert: bool = False


class Layout(Value, frozen=True, kw_only=True):
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
    stage_layers: Grid | None = None
    """Layers per chunk and stage, ``[chunk][stage]``; None: as even as possible."""
    offload: tuple[str, ...] = ()
    """What is kept in host memory: optimizer."""
    compiled: bool | None = None
    """Whether layers go through torch.compile; None: as the framework does by itself."""
    attention: AttentionKernel | None = None
    """What attention runs on; None: as the framework does by itself."""
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


def overlapping(layout: Layout, *, experts: bool = True) -> frozenset[str]:
    """Fields of ``Overlap`` that mean something for a layout: those of which it has any communication.

    ``experts``: whether its model has, or may have, experts, whose replicas are others than those of the layers.
    """
    ranks = layout.data_parallel * layout.context_parallel
    has = {
        "gradient_reduce": ranks > 1 or (experts and layout.expert_data_parallel > 1),
        "parameter_gather": layout.optimizer_shards > 1,
        "tensor": layout.tensor_parallel > 1, "point_to_point": layout.pipeline_parallel > 1,
        "expert": layout.expert_parallel > 1,
    }
    return frozenset(name for name, is_there in has.items() if is_there)
