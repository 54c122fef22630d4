"""What a framework can express: the search looks only at layouts that it can run."""

from __future__ import annotations

from meshwright.domain.layout import AttentionKernel, ContextKind, Schedule
from meshwright.domain.training import Task
from meshwright.value import Value


class Features(Value, frozen=True, kw_only=True):
    """The searchable surface of a framework version."""

    name: str
    schedules: tuple[Schedule, ...] = ("1f1b", "interleaved")
    zero_stages: tuple[int, ...] = (0, 1)
    partial_sharding: bool = True
    """Shard groups smaller than all data-parallel ranks (HSDP, distributed-optimizer instances)."""
    instances_divide_experts: bool = False
    """The number of shard groups must divide the experts' replicas (Megatron's distributed-optimizer instances)."""
    parameter_shards_with_pipeline: bool = False
    """ZeRO-2 and 3 together with pipeline stages."""
    context_kinds: tuple[ContextKind, ...] = ("ring",)
    context_parallel: bool = True
    tensor_parallel: bool = True
    pipeline_parallel: bool = True
    expert_parallel: bool = True
    expert_tensor_parallel: bool = True
    sequence_parallel: bool = True
    sequence_parallel_against: str = ""
    """Why it is on only where somebody asks for it; empty: it is on with every TP."""
    uneven_stages: bool = True
    """Any number of layers per stage."""
    recompute: tuple[str, ...] = ("none", "selective", "full")
    recompute_first_layers: bool = True
    """The first k layers of each chunk (full:k)."""
    selective_modules: tuple[str, ...] = ("core_attn",)
    selective_default: tuple[str, ...] = ("core_attn",)
    """The modules of plain ``selective``; torchtitan has one policy for all of them."""
    positions: tuple[str, ...] = ("rope", "learned", "none")
    interleaved_needs_multiple: bool = True
    """Micro-batches must be a multiple of the stages under the interleaved schedule."""
    fills_pipeline: bool = False
    """1F1B refuses fewer micro-batches than its warm-up launches (stages - 1)."""
    shards_over_context: bool = True
    """The shard group is dp x cp (Megatron, torchtitan); False: dp only."""
    optimizer_offload: bool = True
    """Optimizer states can stand in host memory."""
    offload_zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    """ZeRO stages under which they can."""
    recompute_per_stage: bool = False
    """A count of recomputed layers for each stage and chunk (full:[3,2,1,0])."""
    recompute_mixed: bool = False
    """Several treatments by stage and chunk (full:[3,2]+selective:mlp_act:[1,1])."""
    recompute_mixed_first: bool = False
    """Several treatments behind each other, each with one number of layers for all chunks."""
    overlaps: tuple[str, ...] = ("grad", "param", "tp", "p2p", "ep")
    """Words of ``overlap=`` that can be switched on."""
    dispatchers: tuple[str, ...] = ("alltoall",)
    """Dispatchers of experts that its files can name (``--launch dispatcher=``)."""
    offloads: tuple[str, ...] = ()
    """Settings of activation memory that it has (``domain.launch.OFF``)."""
    attentions: tuple[AttentionKernel, ...] = ()
    """Attention kernels that it can be told to run; empty: it has no key for them."""
    own_attention: AttentionKernel | None = None
    """What its files choose where a layout names no kernel; None: what the implementation has."""
    compiles: bool = False
    """Its files can switch torch.compile on and off."""
    sequence_parallel_with_tensor: bool = False
    """Sequence parallelism is on whenever tensor parallelism is."""
    mixture_of_experts: bool = True
    tasks: tuple[Task, ...] = ("pretrain", "sft")
    plain_optimizers: tuple[str, ...] = ()
    """Optimizers whose state is not sharded and whose gradients are not reduced beside the backward pass."""

    def overlap_words(self, optimizer: str) -> tuple[str, ...]:
        """Words of ``overlap=`` that can be switched on with an optimizer."""
        plain = ("grad", "param") if optimizer in self.plain_optimizers else ()
        return tuple(word for word in self.overlaps if word not in plain)
