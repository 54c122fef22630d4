"""What a row's source means beside its columns: the outcome of ``data/conventions.yaml``, carried by the row."""

from __future__ import annotations

from typing import Literal

from meshwright.domain.layout import AttentionKernel
from meshwright.value import Value


class Said(Value, frozen=True, kw_only=True):
    """Settings that no column has, and what a blank column means; None, or the empty word, where no convention says it."""

    unreadable: str = ""
    """Why the row is not predicted."""

    tuning: Literal["", "tuned", "untuned"] = ""
    """Whether the source calls the run tuned, or one that only shows that it works; nothing is predicted from it."""

    # the model
    vocabulary: int | None = None
    ffn_per_hidden: int | None = None
    """Feed-forward width over hidden width where it is blank."""
    gated: bool | None = None
    num_dense_layers: int | None = None
    num_heads: int | None = None
    """Heads where the column does not divide the hidden width; key-value heads are as many."""
    idle_layers: tuple[int, ...] = ()
    """Layers of the script that do nothing; the row counts them."""
    tied_embeddings: bool | None = None
    position: Literal["", "alibi"] = ""
    latent_of: str = ""
    """The catalogue's model whose widths of latent attention are meant."""
    mtp_layers: int = 0

    # the system
    device: str = ""
    """Another spelling than the column's."""
    cluster: str = ""
    network_bytes_per_s: float | None = None
    """Bandwidth of a node's network per device."""
    family: str = ""
    """Family of frameworks, as ``Implementation.family`` names it."""
    implementation: str = ""
    edition: str = ""
    """What the name of the implementation ends in for a release that ran otherwise."""
    flex: bool = False
    """The flex dispatcher of experts, with DeepEP or HybridEP."""
    graphs: bool = False
    """The whole iteration is one CUDA graph (partial graphs of attention or router are not)."""
    dropless: bool = False
    """No capacity: the host waits for the numbers of tokens per expert."""
    balanced: bool = False
    """Routing is forced to be balanced, or padded to a capacity."""
    blocking_launches: bool = False
    partial_graphs: bool = False
    """Parts of a layer are CUDA graphs."""
    deterministic: bool = False
    plain_host: bool = False
    """Nobody bound processes to cores or held garbage collection back."""
    offloaded_layers: int = 0
    """Layers whose saved tensors wait on the host."""
    offloaded_modules: tuple[str, ...] = ()
    """Modules of every layer whose inputs do so."""
    offloaded_checkpoints: bool = False
    """Checkpoints of full recomputation wait there."""
    slice_tokens: int = 0
    """The feed-forward block runs in slices of so many tokens."""
    offloaded_states: bool = False
    """Optimizer states wait on the host, and what else the implementation sends along."""
    attention_by_default: bool = False
    """The framework chose the back end of attention."""
    attention: AttentionKernel | None = None
    """The kernel of attention, where it is not the implementation's own."""

    # numbers
    recipe: str = ""
    """The precision recipe, where the spelling of the column does not say which."""
    gradient_dtype: Literal["", "fp32", "bf16"] = ""
    gradient_bytes: float | None = None
    master_bytes_saved: float = 0.0
    weight_cast_bytes: float = 0.0
    """``Precision.weight_cast_bytes`` of the recipe."""
    optimizer: str = "adamw"

    # the layout
    layout: str = ""
    """Its label, where that is known: it decides, and columns must agree with it."""
    microbatch_sequences: int | None = None
    virtual_stages: int | None = None
    layer_per_chunk: bool = False
    """One layer a chunk where chunks are blank."""
    experts_as_tensor: bool = False
    """Expert TP is TP where it is blank."""
    sequence_parallel: bool = False
    """With TP, where the column is blank."""
    context_kind: Literal["ring", "ulysses", "hybrid", "all-gather"] = "ring"
    zero_stage: int | None = None
    """What a stage of ZeRO by the source's name amounts to."""
    shards: int | None = None
    sharding: Literal["ranks", "replicas", "node", "fewest"] = "ranks"
    """Over which ranks: all of dp x cp, dp alone, those of a node, or as few as hold the states."""
    max_shards: int | None = None
    recompute: str = ""
    """In the label's words."""
    first_chunk_only: bool = False
    """Recomputed layers are those of the first chunk of a stage."""
    tensor_overlap: bool = False
    expert_overlap: bool = False
    gradient_overlap: bool = True
    parameter_overlap: bool = True
    message_overlap: bool = True
    placement: Literal["", "cost", "ends", "fill"] = ""
    """Layers by nanotron's cumulative cost, with both ends counted as a layer each, or place after place filled up, so that the
    last has what is left; else as even as possible."""
    pipeline_layout: str = ""
    """Megatron-Core's pipeline layout string."""

    # the task and what was measured
    document_tokens: int | None = None
    """Length of the document that a token of a packed sequence stands in, on average."""
    lora_targets: tuple[str, ...] = ()
    lora_rank: int | None = None
    memory_reading: Literal["allocated", "first step", "allocator", "device"] = "device"
    memory_stage: Literal["fullest", "first", "last"] = "fullest"
    memory_in_gigabytes: bool = False
    """The figure counts 1e9 bytes, whatever the source calls its unit."""
    memory_unknown: bool = False
    """The figure is of something that is not modelled."""
