"""How a framework version runs a layer: what it keeps for backward, what it fuses, how it communicates.

One data file per framework version fills these values; one formula per quantity reads them. What is kept or moved is a
row of a table, so that Korthikanti's formulas, Megatron with Transformer Engine and eager PyTorch are three tables and
not three programs.
"""

from __future__ import annotations

from typing import Literal

from meshwright.value import Value

Part = Literal["attention", "mixer", "mlp", "experts", "expert_bias", "shared", "router"]
"""Which block of a layer a row belongs to. Rows of ``experts``, and of ``expert_bias`` where experts have biases, count per
routed token, all others per token."""

Width = Literal[
    "hidden", "query", "key", "value", "output", "heads", "scores", "mlp_inputs", "mlp_width",
    "query_rank", "key_value_rank", "rope_dim", "num_experts", "experts_per_token", "attention_input", "streams", "gate", "index",
    "selected", "index_scores", "expert_latent", "mixer_convolved", "mixer_gate", "mixer_scalars", "mixer_decays", "mixer_key",
    "mixer_value", "mixer_chunk", "mixer_states",
]
"""Elements per token of a row: a width of the model. ``attention_input`` is what tensor parallelism gathers before attention (the
latents of MLA); ``scores`` is heads x attended tokens (unfused attention); ``streams`` the residual streams beside the first;
``gate`` of attention's output; ``index`` the queries of the indexer, ``index_scores`` the keys that each of them scores,
``selected`` the tokens that it chooses; ``expert_latent`` the latent space of experts. Of a linear mixer: channels of its
convolution, gates, scalars of heads, decays, one set of keys as the recurrence takes them, values, a chunk for each head,
states between chunks."""

Shard = Literal["tensor", "sequence", "none", "gathered"]
"""Divided by TP always, by TP under sequence parallelism only, or never; or the part of it that sequence parallelism gathers from
the other ranks. Context parallelism divides the tokens."""

Condition = Literal[
    "", "context", "sequence", "expert", "query_key_norm", "gated", "alone", "streams", "output_gate", "indexer", "selected",
    "convolution", "keyed", "delta", "latent_experts", "latent", "direct", "several_experts",
]
"""When a tensor or a pass exists: always; under context, sequence or expert parallelism; where queries and keys are normalised; in
gated blocks; of a mixer without attention beside it; with several residual streams; where attention's output has a gate, where
it has an indexer, where tokens are selected; where a mixer convolves, where it has queries and keys of its own, where it
follows a delta rule; where experts work in a latent space; where attention projects into latents first, and where it does not; on
ranks with more than one expert."""

PassKind = Literal[
    "", "norm", "rotary", "gate", "residual", "copy", "cast", "loss", "loss_parallel", "embedding", "adam", "router", "permute",
    "gathered", "scattered",
]
"""Sorts of memory-bound operations that a profile times apart (``Constants.pass_speeds``)."""


class SavedTensor(Value, frozen=True, kw_only=True):
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
    kept_by: tuple[str, ...] = ()
    """Selective-recompute modules that keep it, where nothing does otherwise."""
    only: Condition = ""
    """Where it exists at all."""
    offload: str = ""
    """Module whose input it is, by the names of ``Launch.offloaded_modules``."""


class Pass(Value, frozen=True, kw_only=True):
    """One memory-bound operation: bytes read and written per element, forward and backward."""

    name: str
    part: Part
    width: Width
    forward_bytes: float
    backward_bytes: float
    shard: Shard
    modules: tuple[str, ...] = ()
    """Selective-recompute modules that run its forward again."""
    kind: PassKind = ""
    """What sort of operation it is, by which a profile measures its speed; empty: as all others."""
    only: Condition = ""
    """Where it exists at all."""


class Units(Value, frozen=True, kw_only=True):
    """Sharded units of parameters, one for each layer and one for the ends: bytes read and written per parameter around messages.

    Per parameter of the rank before sharding, or of its shard where the name says so.
    """

    cast_shard_bytes: float
    """Of the shard, before it is gathered: cast to the precision of products."""
    gather_shard_bytes: float
    """Of the shard: copy into the message."""
    gather_bytes: float
    """Copies out of what was gathered, where there are several shards."""
    reduce_bytes: float
    """Gradients of the last backward cast into the message that is reduced."""
    copy_bytes: float
    """A copy of reduced gradients where there is one shard."""
    quotient_bytes: float
    """A further pass over them where there is one shard and several replicas."""
    first_sum_bytes: float
    """Gradients of the first micro-batch that wait for others: cast to FP32, and read as such when they are reduced."""
    sum_bytes: float
    """Gradients of one more micro-batch added to them."""
    shard_sum_bytes: float
    """Of the shard: reduced gradients of one more micro-batch added to those before."""
    owner_shard_bytes: float
    """Of an owner's slice, where states are sharded and gradients are not: copies into the message after the update."""
    owner_bytes: float
    """Copies of everybody's slices into the parameters."""


class Compilation(Value, frozen=True, kw_only=True):
    """What torch.compile changes of an implementation: what is kept, moved and launched. Fields as in ``Implementation``."""

    saved: tuple[SavedTensor, ...]
    passes: tuple[Pass, ...]
    kernels_forward: int
    kernels_backward: int
    loss_passes: tuple[float, float]


class Implementation(Value, frozen=True, kw_only=True):
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
    kernels_expert_bias_forward: int = 0
    """Kernels per local expert whose products have biases that are added expert by expert."""
    kernels_expert_bias_backward: int = 0
    kernels_ring_forward: int = 0
    """Kernels per layer of every further step of a context-parallel ring: attention of a block, its merge, sends, slices."""
    kernels_ring_backward: int = 0
    collectives_forward: int = 0
    """Tensor-parallel collectives of a layer that cost host time beside their kernels (``collective_host_s``)."""
    collectives_backward: int = 0
    attention_speed: float = 1.0
    """Speed of the attention kernel relative to the best one for the device (FlashAttention-2 against 3 on Hopper)."""
    accumulation_bytes: float = 0.0
    """Bytes moved per parameter after every micro-batch to add its gradient into the buffer; 0 where the GEMM does it."""
    stage_split: Literal["even", "cost", "fill"] = "even"
    """How layers are placed where the layout does not say: as even as possible, by cumulative cost with the output layer, or
    filling stage after stage, so that the last one has what is left."""
    optimizer_passes_bytes: float = 0.0
    """Bytes read and written per parameter by the optimizer step beside states, gradient and weight (norm, clip, copies)."""
    update_bytes: float = 0.0
    """Bytes read and written per updated parameter by an optimizer made of plain operators; 0: states, gradient and weight once."""
    units: Units | None = None
    """Data parallelism by sharded units (PyTorch FSDP2), also where nothing is sharded; None: by buckets."""
    distributed_tensors: bool = False
    """Tensor parallelism by PyTorch's DTensor: inputs of blocks are gathered once and kept, whatever attention takes of them, and
    gradients of replicated weights are reduced by themselves."""
    checkpoints: bool = False
    """Recomputation runs a module again with the communication inside, and stops once everything that is kept has been made."""
    cuts_query_groups: bool = False
    """Where TP exceeds the key-value heads, the projection of queries, keys and values is cut evenly all the same, and its result
    is gathered, of which each rank takes its heads. False: heads are copied."""
    joined_products: bool = True
    """Queries, keys and values are one product, and so are gate and up."""
    repeats_keys: bool = False
    """Keys and values are repeated for every query head before attention, and context parallelism sends them so."""
    joined_exchanges: bool = True
    """Ulysses exchanges queries, keys, values and the output of a layer as one message per direction; False: as four."""
    exchange_copies: float = 1.0
    """Copies around an exchange of Ulysses: reads and writes of what travels."""
    cuda_graphs: bool = False
    blocking_launches: bool = False
    """The host waits for every kernel (CUDA_LAUNCH_BLOCKING=1): launches add to the time of the device."""
    loss_passes: tuple[float, ...] = (4.0, 4.0)
    """Bytes read and written per logit by the loss, forward and backward: 4 and 4 where it is fused and works in place."""
    split_loss_passes: tuple[float, ...] = ()
    """The same where tensor ranks split the vocabulary, per own logit; empty: no different."""
    logit_bytes: float = 2.0
    """Bytes per logit held at the loss: 2 where it works in place, more where FP32 copies and the softmax are kept."""
    split_logit_bytes: float = 0.0
    """The same per own logit where tensor ranks split the vocabulary; 0: no different."""
    logit_saved_bytes: float = 0.0
    """Part of ``logit_bytes`` that the loss keeps for its backward."""
    logit_bytes_before: float = 0.0
    """Bytes per logit of the micro-batch before that are still held when the next one's loss is taken."""
    logit_chunk_tokens: int = 0
    """Tokens whose logits exist at a time, where the loss is taken in chunks that each run forward and backward; 0: all."""
    logits_gathered: bool = False
    """Logits are gathered over TP before the loss."""
    sequence_parallel: bool = True
    tensor_backward_overlap: bool = True
    """TP collectives of the backward run beside the weight- and input-gradient GEMMs (async TP)."""
    gathers_again: bool = True
    """Backward gathers the sequence-parallel input of a block once more for its weight gradient. False: the copy is kept from the
    forward (rows of shard ``gathered``), unless the module ``comm`` is recomputed."""
    gradient_dtype: Literal["fp32", "bf16"] = "fp32"
    bucket_bytes: float = 160e6
    """Smallest gradient bucket; the last one cannot be hidden."""
    bucket_bytes_per_rank: float = 0.0
    """Buckets grow with the group: at least so many bytes per data-parallel rank."""
    gradient_all_reduce: bool = False
    """Gradients are all-reduced whole over all replicas even where optimizer states are sharded."""
    replicated_bucket_bytes: float = 0.0
    """Bucket of the hooks that reduce gradients during the last backward where optimizer states are not sharded; 0: no such
    hooks, both cases run alike."""
    message_handshake: bool = False
    """Pipeline stages send the shape of every tensor ahead and wait for it on the host, so that messages may stall."""
    allocator_retries: bool = False
    """Near the memory's edge the allocator returns cached blocks and asks again, and the step slows down."""
    gradient_overlap: bool = True
    parameter_overlap: bool = True
    broadcast_tensors: int = 0
    """Tensors of a layer, where ZeRO-1 shards by whole tensors that each owner broadcasts; 0 where it all-gathers slices."""
    pipeline_scatter: bool = False
    """Each tensor rank sends its slice of an activation to the next stage, where the slices are gathered over TP."""
    point_to_point_overlap: bool = True
    """Point-to-point overlap under the interleaved schedule."""
    expert_deduplication: bool = False
    """One copy of a token per destination node, and per rank inside it, in the expert all-to-all (DeepEP)."""
    casts_weights: bool = False
    """Low-precision weights are quantised in every micro-batch; False: once a step (Transformer Engine, is_first_microbatch)."""
    expert_fusion: bool = False
    """Gate and quantisation between the two products of an expert are part of the grouped kernels."""
    grouped_linear: bool = False
    """Local experts have parameters of their own, and native code launches their products one after the other (Transformer
    Engine's GroupedLinear; ``perf.launches.starts``)."""
    expert_host_sync: bool = False
    """Dropless routing: the host reads the numbers of tokens per expert before it launches the experts."""
    pads_vocabulary_to: int = 128
    """The vocabulary is padded to a multiple of this times TP; 1: no padding."""
    extra_gradient_bytes: float = 0.0
    """16-bit gradients beside an FP32 buffer: bytes per parameter on top of the gradient that the recipe keeps."""
    update_gradient_bytes: float = 0.0
    """Bytes per updated parameter that the optimizer step holds beside its states where gradients are of 16 bits: FP32 copies."""
    step_gradient_bytes: float = 0.0
    """The same where the allocator puts them into blocks of activations, which are gone by then: what the optimizer step needs
    is a peak of its own, beside that of the backward, and the larger one counts (``estimate.memory``)."""
    weight_gradient_bytes: float = 0.0
    """Bytes per weight of the largest product, taken while its gradient is computed beside the gradient buffer."""
    full_precision_shards: bool = False
    """Fully sharded weights are the FP32 ones that the optimizer updates: no copy in the data type of the products beside them but
    while they are gathered."""
    offloads_shards: bool = False
    """Offload keeps fully sharded weights and gradients on the host as well, not the optimizer's states alone."""
    masks_selection: bool = False
    """Sparse attention is a mask over the scores of all pairs (``perf.masked``); False: kernels skip what was not chosen."""
    frees_operators: bool = False
    """What an operator kept for its backward is free before the one in front of it runs: autograd of single operators."""
    ring_backward_bytes: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """What the backward of ring attention holds beside what the layer kept: bytes per element of queries, of keys and values, and
    of keys and values for every rank of the ring."""
    gather_buffer_bytes: float = 0.0
    """Bytes per token and hidden element of the buffers for tensors that are gathered over TP, kept all along."""
    streamed_bytes: float = 0.0
    """Bytes per token and hidden element that a layer hands to a communication stream under TP. The allocator cannot use them again
    until the device has passed them, so they pile up where the host runs ahead, and are given up where memory is short."""
    score_saved: tuple[SavedTensor, ...] = ()
    """What it keeps besides where attention has a score matrix."""
    score_passes: tuple[Pass, ...] = ()
    """What it moves besides where attention has a score matrix."""
    attention: str = ""
    """The attention kernel that was chosen (``flash``, ``fused``, ``math``); empty: its own."""
    compiled: bool = False
    """Layers go through torch.compile."""
    switched: Compilation | None = None
    """With torch.compile off where it is on, and on where it is off; None: what it would change is not known."""
    source: str = ""

    @property
    def fused_loss(self) -> bool:
        """The loss works in place on the logits and keeps no FP32 copy."""
        return self.logit_bytes <= 2.0

    @property
    def kernel(self) -> str:
        """What attention runs on; empty where the framework chooses between fused kernels, of which one answer is known."""
        return self.attention or ("" if self.flash_attention else "math")
