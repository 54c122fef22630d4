"""A layout as Megatron-LM arguments: degrees, recomputation, sharding, overlap, precision and optimizer."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, assert_never

from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.errors import fault
from meshwright.frameworks.megatron.flags import Arguments, Shell
from meshwright.frameworks.megatron.pipeline import add_pipeline, split_of

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.implementation import Implementation
    from meshwright.domain.layout import Layout

CONTEXT_TYPES = {"ring": "p2p", "all-gather": "all_gather", "ulysses": "a2a", "hybrid": "a2a+p2p"}
"""Transformer Engine's names; ``allgather``, as the help text of the flag has it, is refused in the first step."""
FP8_RECIPES = {
    "fp8-delayed": ("hybrid", "delayed"),
    "fp8-cs": ("hybrid", "tensorwise"),
    "fp8-mx": ("e4m3", "mxfp8"),
    "fp8-blockwise": ("e4m3", "blockwise"),
}
PRECISIONS = ("fp32", "bf16", "fp16", *FP8_RECIPES, "nvfp4")
MOMENTS = {"adamw": None, "adamw-bf16-moments": "bf16", "adamw-8bit": "fp8"}
"""Optimizers of the Adam family, and the type of their moments (None: FP32)."""
OPTIMIZERS = (*MOMENTS, "sgd", "muon")


def add_layout(arguments: Arguments, case: Case, layout: Layout) -> None:
    """Append degrees, expert grid, batch and sequence."""
    arguments.add("--tensor-model-parallel-size", layout.tensor_parallel)
    arguments.add_if(layout.sequence_parallel and layout.tensor_parallel > 1, "--sequence-parallel")
    add_pipeline(arguments, case, layout)
    arguments.add("--context-parallel-size", layout.context_parallel)
    if layout.context_parallel > 1:
        arguments.add("--cp-comm-type", CONTEXT_TYPES[layout.context_kind])
        if layout.context_kind == "hybrid":
            inner = hybrid_inner(case, layout)
            arguments.add("--hierarchical-context-parallel-sizes", inner, layout.context_parallel // inner)
    if case.model.is_moe:
        arguments.add("--expert-model-parallel-size", layout.expert_parallel)
        arguments.add("--expert-tensor-parallel-size", layout.expert_tensor_parallel)
        _add_dispatcher(arguments, case)
    arguments.add("--micro-batch-size", layout.microbatch_sequences)
    arguments.add("--global-batch-size", case.batch.global_batch_sequences)
    arguments.add("--seq-length", case.batch.sequence_tokens)


def hybrid_inner(case: Case, layout: Layout) -> int:
    """Ranks of the inner all-to-all of hybrid context parallelism: those in a scale-up domain, within the heads."""
    attention = case.model.kinds[0].attention
    heads = attention.num_heads if attention.latent else attention.num_key_value_heads
    local = max(1, case.cluster.scale_up_devices // layout.tensor_parallel)
    return gcd(layout.context_parallel, local, max(1, heads // layout.tensor_parallel))


def _add_dispatcher(arguments: Arguments, case: Case) -> None:
    """How tokens travel to their experts."""
    if case.implementation.expert_deduplication:
        arguments.add("--moe-token-dispatcher-type", "flex")
        if arguments.version.minor >= 16:
            arguments.add("--moe-flex-dispatcher-backend", "deepep")
        else:
            arguments.add("--moe-enable-deepep")
    else:
        arguments.add("--moe-token-dispatcher-type", "alltoall")
    # Before core 0.16 grouped GEMMs were for BF16 alone.
    arguments.add_if(case.training.precision.base_dtype == "bf16" or arguments.version.minor >= 16, "--moe-grouped-gemm")
    arguments.add("--moe-permute-fusion")


def add_recompute(arguments: Arguments, case: Case, layout: Layout) -> None:
    """Append what is recomputed in the backward pass."""
    match layout.recompute:
        case NoRecompute() | Full(layers=0):
            return
        case Selective(modules=modules):
            arguments.add("--recompute-granularity", "selective")
            arguments.add("--recompute-modules", *modules)
        case Full(layers=layers):
            count = block_layers(layers, case, layout)
            arguments.add("--recompute-granularity", "full")
            arguments.add("--recompute-method", "uniform" if count is None else "block")
            arguments.add("--recompute-num-layers", 1 if count is None else count)
        case _:
            assert_never(layout.recompute)


def block_layers(layers: int | tuple[tuple[int, ...], ...] | None, case: Case, layout: Layout) -> int | None:
    """Layers to recompute in each chunk of each stage; None: all. Megatron has one count for all of them."""
    if not isinstance(layers, tuple):
        return layers
    split = split_of(case, layout)
    if layers == split:
        return None
    counts = {count for chunk in layers for count in chunk}
    if len(counts) > 1:
        raise fault(
            "megatron.recompute", "Megatron-LM recomputes the same number of layers on every stage, not {layers}: "
            "use recompute=full:{most}", layers=[list(chunk) for chunk in layers], most=max(counts), path="layout",
        )  # fmt: skip
    return counts.pop()


def add_sharding(arguments: Arguments, layout: Layout) -> None:
    """Append the distributed optimizer or Megatron-FSDP, and the overlap of their communication."""
    ranks = layout.data_parallel * layout.context_parallel
    stage, overlap = layout.zero_stage, layout.overlap
    if stage > 0:
        arguments.add("--use-distributed-optimizer")
        inner = layout.gradient_shards if stage >= 2 else layout.optimizer_shards
        arguments.add_if(inner < ranks, "--num-distributed-optimizer-instances", ranks // inner)
    if stage >= 2:
        fsdp = arguments.version.minor >= 14
        arguments.add("--use-megatron-fsdp" if fsdp else "--use-custom-fsdp")
        arguments.add("--data-parallel-sharding-strategy", "optim_grads_params" if stage == 3 else "optim_grads")
        outer = layout.optimizer_shards > layout.gradient_shards
        arguments.add_if(outer, "--outer-dp-sharding-strategy", "optim")
        arguments.add_if(fsdp, "--ckpt-format", "fsdp_dtensor")
        arguments.add("--no-gradient-accumulation-fusion")
        arguments.add_if(stage == 3 and fsdp, "--init-model-with-meta-device")
    arguments.add_if(overlap.gradient_reduce and ranks > 1, "--overlap-grad-reduce")
    arguments.add_if(overlap.parameter_gather and stage > 0 and ranks > 1, "--overlap-param-gather")
    arguments.add_if(overlap.tensor and layout.tensor_parallel > 1, "--tp-comm-overlap")
    arguments.add_if(overlap.expert and layout.expert_parallel > 1, "--overlap-moe-expert-parallel-comm")


def add_precision(arguments: Arguments, case: Case) -> None:
    """Append number formats of weights, GEMMs and gradients, and the kernels for attention and loss."""
    precision = case.training.precision
    if precision.base_dtype in {"bf16", "fp16"}:
        arguments.add(f"--{precision.base_dtype}")
    if recipe := FP8_RECIPES.get(precision.name):
        arguments.add("--fp8-format", recipe[0])
        arguments.add("--fp8-recipe", recipe[1])
        if recipe[1] == "delayed":
            arguments.add("--fp8-amax-history-len", 1024)
            arguments.add("--fp8-amax-compute-algo", "max")
        arguments.add_if(precision.gather_bytes < 2, "--fp8-param-gather")
        if precision.gather_bytes < 2 and recipe[1] == "mxfp8":
            arguments.add("--reuse-grad-buf-for-mxfp8-param-ag")
    if precision.name == "nvfp4":
        arguments.add("--fp4-format", "e2m1")
        arguments.add("--fp4-recipe", "nvfp4")
    if precision.bf16_edge_layers:
        arguments.add("--first-last-layers-bf16")
        arguments.add("--num-layers-at-start-in-bf16", precision.bf16_edge_layers)
        arguments.add("--num-layers-at-end-in-bf16", precision.bf16_edge_layers)
    if precision.base_dtype == "bf16":
        arguments.add_if(precision.gradient_bytes < 4, "--grad-reduce-in-bf16")
    elif precision.base_dtype == "fp16":
        arguments.add_if(precision.gradient_bytes >= 4, "--accumulate-allreduce-grads-in-fp32")
    implementation = case.implementation
    arguments.add("--attention-backend", "auto" if implementation.flash_attention else "unfused")
    if loss_in_place(implementation):
        arguments.add("--cross-entropy-loss-fusion")
        # Transformer Engine's works in place on the logits; from 0.18 on Megatron-LM refuses it "due to stability issues".
        arguments.add("--cross-entropy-fusion-impl", "te" if arguments.version.minor < 18 else "native")


def loss_in_place(implementation: Implementation) -> bool:
    """Whether the loss keeps nothing beside the logits themselves, which is what Megatron-LM calls fused."""
    return implementation.logit_bytes <= 2.0


def add_optimizer(arguments: Arguments, case: Case, layout: Layout) -> None:
    """Append the optimizer, the types of its state, and where it is kept."""
    name = case.training.optimizer.name
    master = case.training.precision.master_bytes
    offload = "optimizer" in layout.offload
    if name in MOMENTS:
        moment = MOMENTS[name]
        arguments.add("--optimizer", "adam")
        arguments.add("--adam-beta1", Shell("$ADAM_BETA1"))
        arguments.add("--adam-beta2", Shell("$ADAM_BETA2"))
        arguments.add_if(moment or offload or master == 2, "--use-precision-aware-optimizer")
        arguments.add_if(master == 2, "--main-params-dtype", "fp16")
        if moment:
            arguments.add("--exp-avg-dtype", moment)
            arguments.add("--exp-avg-sq-dtype", moment)
        if offload:
            arguments.add("--optimizer-cpu-offload")
            arguments.add("--optimizer-offload-fraction", 1.0)
            arguments.add("--overlap-cpu-optimizer-d2h-h2d")
    elif name == "sgd":
        arguments.add("--optimizer", "sgd")
        arguments.add("--sgd-momentum", 0.9)
    else:
        arguments.add("--optimizer", name)
    arguments.add("--lr", Shell("$LEARNING_RATE"))
    arguments.add("--min-lr", Shell("$MIN_LEARNING_RATE"))
    arguments.add("--lr-decay-style", "cosine")
    arguments.add("--lr-warmup-fraction", Shell("$WARMUP_FRACTION"))
    arguments.add("--weight-decay", Shell("$WEIGHT_DECAY"))
    arguments.add("--clip-grad", Shell("$CLIP_GRADIENT"))
