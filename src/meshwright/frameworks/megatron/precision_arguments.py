"""Number formats, kernels and the optimizer as Megatron-LM arguments: what a layout does not choose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell
from meshwright.frameworks.megatron.flags import Arguments

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.implementation import Implementation
    from meshwright.domain.layout import Layout

FP8_RECIPES = {
    "fp8-delayed": ("hybrid", "delayed"),
    "fp8-cs": ("hybrid", "tensorwise"),
    "fp8-mx": ("e4m3", "mxfp8"),
    "fp8-blockwise": ("e4m3", "blockwise"),
}
PRECISIONS = ("fp32", "bf16", "fp16", *FP8_RECIPES, "nvfp4")
MOMENTS = {"adamw": None, "adamw-bf16-moments": "bf16", "adamw-8bit": "fp8"}
"""Optimizers of the Adam family, and the type of their moments (None: FP32)."""
BACKENDS: dict[str, str] = {"": "auto", "flash": "flash", "fused": "fused", "math": "unfused"}
"""Attention kernel -> ``--attention-backend``; Transformer Engine chooses where none is named."""
OPTIMIZERS = (*MOMENTS, "sgd", "muon")


def add_dispatcher(arguments: Arguments, case: Case) -> None:
    """Append how tokens travel to their experts."""
    if not case.model.is_moe:
        return
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


def add_offload(arguments: Arguments, case: Case) -> None:
    """Append what waits on the host of activations."""
    launch = case.launch
    arguments.add_if(launch.offloaded_layers, "--cpu-offloading-num-layers", launch.offloaded_layers)
    if launch.offloaded_modules:
        arguments.add("--fine-grained-activation-offloading")
        arguments.add("--offload-modules", *launch.offloaded_modules)


def add_precision(arguments: Arguments, case: Case) -> None:
    """Append number formats of weights, GEMMs and gradients, and the kernels for attention and loss."""
    precision = case.training.precision
    if precision.base_dtype in {"bf16", "fp16"}:
        arguments.add(f"--{precision.base_dtype}")
    if recipe := FP8_RECIPES.get(precision.name):
        arguments.add("--fp8-format", recipe[0])
        # Core 0.11 has delayed scaling alone.
        arguments.add_if(arguments.version.minor >= 12 or recipe[1] != "delayed", "--fp8-recipe", recipe[1])
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
    arguments.add("--attention-backend", BACKENDS[implementation.kernel])
    if loss_in_place(implementation):
        arguments.add("--cross-entropy-loss-fusion")
        # Transformer Engine's works in place on the logits; from 0.18 on Megatron-LM refuses it "due to stability issues".
        choice = "te" if arguments.version.minor < 18 else "native"
        arguments.add_if(arguments.version.minor >= 12, "--cross-entropy-fusion-impl", choice)


def is_precision_aware(case: Case, layout: Layout) -> bool:
    """Whether the optimizer is one whose states have types of their own, which the distributed optimizer alone has."""
    training = case.training
    return bool(MOMENTS.get(training.optimizer.name)) or training.precision.master_bytes == 2 or "optimizer" in layout.offload


def is_distributed(case: Case, layout: Layout) -> bool:
    """Whether the distributed optimizer is on: where it shards, and on one rank where the optimizer is only there with it."""
    alone = layout.data_parallel * layout.context_parallel == 1
    return layout.zero_stage > 0 or (alone and is_precision_aware(case, layout))


def loss_in_place(implementation: Implementation) -> bool:
    """Whether the loss keeps nothing beside the logits themselves, which is what Megatron-LM calls fused."""
    return implementation.logit_bytes <= 2.0


def add_optimizer(arguments: Arguments, case: Case) -> None:
    """Append the optimizer and the types of its state; where that is kept is a matter of the layout."""
    name = case.training.optimizer.name
    master = case.training.precision.master_bytes
    if name in MOMENTS:
        moment = MOMENTS[name]
        arguments.add("--optimizer", "adam")
        arguments.add("--adam-beta1", Shell("$ADAM_BETA1"))
        arguments.add("--adam-beta2", Shell("$ADAM_BETA2"))
        arguments.add_if(master == 2, "--main-params-dtype", "fp16")
        if moment:
            arguments.add("--exp-avg-dtype", moment)
            arguments.add("--exp-avg-sq-dtype", moment)
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
