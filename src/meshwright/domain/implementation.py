"""How a framework version runs a layer: what it keeps for backward, what it fuses, how it communicates.

One data file per framework version fills these values; one formula per quantity reads them. What is kept or moved is a
row of a table, so that Korthikanti's formulas, Megatron with Transformer Engine and eager PyTorch are three tables and
not three programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Part = Literal["attention", "mlp", "experts", "shared", "router"]
"""Which block of a layer a row belongs to. Rows of ``experts`` count per routed token, all others per token."""

Width = Literal[
    "hidden", "query", "key", "value", "output", "heads", "scores", "mlp_inputs", "mlp_width",
    "query_rank", "key_value_rank", "rope_dim", "num_experts", "experts_per_token",
]  # fmt: skip
"""Elements per token of a row: a width of the model. ``scores`` is heads x attended tokens (unfused attention)."""

Shard = Literal["tensor", "sequence", "none"]
"""Divided by TP always, by TP under sequence parallelism only, or never. Context parallelism divides the tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTensor:
    """One tensor that a layer keeps for backward."""

    name: str
    part: Part
    width: Width
    bytes_per_element: float
    shard: Shard
    linear_input: bool = False
    """Kept as input of a linear layer: its bytes follow the precision recipe (FP8 keeps one byte)."""
    modules: tuple[str, ...] = ()
    """Selective-recompute modules that drop it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One memory-bound operation: bytes read and written per element, forward and backward."""

    name: str
    part: Part
    width: Width
    forward_bytes: float
    backward_bytes: float
    shard: Shard
    modules: tuple[str, ...] = ()
    """Selective-recompute modules that run its forward again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """A framework version: kernels, saved tensors, buffers and the communication that it can hide."""

    name: str
    description: str
    family: str
    """Framework family whose measurements calibrate it: versions of one family share what is known about it."""
    flash_attention: bool
    """Fused attention without a score matrix; False: batched GEMMs and an explicit softmax over all positions."""
    saved: tuple[SavedTensor, ...]
    passes: tuple[Pass, ...]
    kernels_forward: int
    """Kernels launched by the forward of one dense layer on one device (backward: ``kernels_backward``)."""
    kernels_backward: int
    kernels_moe_forward: int = 0
    """Further kernels of a mixture-of-experts layer."""
    kernels_moe_backward: int = 0
    kernels_expert_forward: int = 0
    """Kernels per local expert on top: grouped products that are launched one by one."""
    kernels_expert_backward: int = 0
    attention_speed: float = 1.0
    """Speed of the attention kernel relative to the best one for the device (FlashAttention-2 against 3 on Hopper)."""
    accumulation_bytes: float = 0.0
    """Bytes moved per parameter after every micro-batch to add its gradient into the buffer; 0 where the GEMM does it."""
    stage_split: Literal["even", "cost"] = "even"
    """How layers are placed where the layout does not say: as even as possible, or by cumulative cost with the output layer."""
    optimizer_passes_bytes: float = 0.0
    """Bytes read and written per parameter by the optimizer step beside states, gradient and weight (norm, clip, copies)."""
    cuda_graphs: bool = False
    loss_passes: tuple[float, ...] = (4.0, 4.0)
    """Bytes read and written per logit by the loss, forward and backward: 4 and 4 where it is fused and works in place."""
    logit_bytes: float = 2.0
    """Bytes per logit held at the loss: 2 where it works in place, more where FP32 copies and the softmax are kept."""
    logit_bytes_before: float = 0.0
    """Bytes per logit of the micro-batch before that are still held when the next one's loss is taken."""
    logits_gathered: bool = False
    """Logits are gathered over TP before the loss."""
    sequence_parallel: bool = True
    tensor_backward_overlap: bool = True
    """TP collectives of the backward run beside the weight- and input-gradient GEMMs (async TP)."""
    gradient_dtype: Literal["fp32", "bf16"] = "fp32"
    bucket_bytes: float = 160e6
    """Smallest gradient bucket; the last one cannot be hidden."""
    bucket_bytes_per_rank: float = 0.0
    """Buckets grow with the group: at least so many bytes per data-parallel rank."""
    gradient_overlap: bool = True
    parameter_overlap: bool = True
    point_to_point_overlap: bool = True
    """Point-to-point overlap under the interleaved schedule."""
    expert_deduplication: bool = False
    """One copy of a token per destination node in the expert all-to-all (DeepEP)."""
    pads_vocabulary_to: int = 128
    """The vocabulary is padded to a multiple of this times TP; 1: no padding."""
    extra_gradient_bytes: float = 0.0
    """16-bit gradients beside an FP32 buffer: bytes per parameter on top of the gradient that the recipe keeps."""
    update_gradient_bytes: float = 0.0
    """Bytes per updated parameter that the optimizer step holds beside its states where gradients are of 16 bits: FP32 copies."""
    weight_gradient_bytes: float = 0.0
    """Bytes per weight of the largest product, taken while its gradient is computed beside the gradient buffer."""
    gather_buffer_bytes: float = 0.0
    """Bytes per token and hidden element of the buffers for tensors that are gathered over TP, kept all along."""
    streamed_bytes: float = 0.0
    """Bytes per token and hidden element that a layer hands to a communication stream under TP. The allocator cannot use them again
    until the device has passed them, so they pile up where the host runs ahead, and are given up where memory is short."""
    source: str = ""

    @property
    def fused_loss(self) -> bool:
        """The loss works in place on the logits and keeps no FP32 copy."""
        return self.logit_bytes <= 2.0
