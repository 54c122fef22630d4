"""The launch files of one layout: ``train.sh`` for torchrun and Slurm, and a README beside it."""

from __future__ import annotations

from functools import cache
from math import ceil
from shlex import quote
from typing import TYPE_CHECKING, Any

from meshwright.domain.label import label
from meshwright.errors import InputError
from meshwright.frameworks.base import File, Options
from meshwright.frameworks.megatron.environment import settings
from meshwright.frameworks.megatron.flags import Arguments, Shell, Version, parse_version
from meshwright.frameworks.megatron.layout_arguments import (
    add_layout,
    add_optimizer,
    add_precision,
    add_recompute,
    add_sharding,
    loss_in_place,
)
from meshwright.frameworks.megatron.model_arguments import add_model
from meshwright.frameworks.megatron.version_limits import check_version
from meshwright.units import GIB

if TYPE_CHECKING:
    from jinja2 import Environment

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout

SHORT_RUN = 50
"""Optimizer steps where the training names no tokens: enough to see the throughput."""


def write(case: Case, layout: Layout, version: str | None, options: Options) -> tuple[File, ...]:
    """``train.sh`` and ``README.md`` for a layout that obeys Megatron-LM's limits."""
    target = parse_version(version)
    if old := check_version(case, layout, target):
        raise InputError(old)
    values = _values(case, layout, target, options)
    return (
        File(path="train.sh", text=_template("train.sh.j2").render(values), executable=True),
        File(path="README.md", text=_template("README.md.j2").render(values)),
    )


def groups(case: Case, layout: Layout, version: Version) -> dict[str, Arguments]:
    """All arguments but data and length of the run, in named groups."""
    named = {name: Arguments(version=version) for name in ("MODEL", "LAYOUT", "SHARDING", "PRECISION", "OPTIMIZER")}
    add_model(named["MODEL"], case)
    add_layout(named["LAYOUT"], case, layout)
    add_recompute(named["LAYOUT"], case, layout)
    add_sharding(named["SHARDING"], layout)
    add_precision(named["PRECISION"], case)
    add_optimizer(named["OPTIMIZER"], case, layout)
    return named


def _data(case: Case, layout: Layout, version: Version) -> tuple[Arguments, Arguments]:
    """Arguments for mock data, and for the user's."""
    mock, real = Arguments(version=version), Arguments(version=version)
    mock.add("--mock-data")
    mock.add("--tokenizer-type", "NullTokenizer")
    mock.add("--vocab-size", case.model.vocabulary - 1)  # the NullTokenizer adds one token of its own
    real.add("--data-path", Shell("$DATA_PATH"))
    real.add("--split", "99,1,0")
    if case.training.task == "sft":
        real.add("--sft")
        real.add("--sft-tokenizer-prompt-format", Shell("$PROMPT_FORMAT"))
    real.add("--tokenizer-type", Shell("$TOKENIZER_TYPE"))
    real.add("--tokenizer-model", Shell("$TOKENIZER_MODEL"))
    unit = case.implementation.pads_vocabulary_to * layout.tensor_parallel
    rows = ceil(case.model.vocabulary / unit) * unit  # the planned table, whatever the tokenizer counts
    real.add_if(version.minor >= 14, "--padded-vocab-size", rows)
    return mock, real


def _run(version: Version) -> Arguments:
    """Length of the run, logging and the dataloader."""
    run = Arguments(version=version)
    run.add("--train-iters", Shell("$TRAIN_ITERS"))
    run.add("--eval-interval", 1000)
    run.add("--eval-iters", 0)
    run.add("--log-interval", 1)
    run.add("--log-throughput")
    run.add("--no-create-attention-mask-in-dataloader")
    run.add("--distributed-timeout-minutes", 30)
    run.add("--manual-gc")
    run.add("--manual-gc-interval", 100)
    return run


def _checkpoints(version: Version) -> Arguments:
    """Checkpoints, where a directory is named."""
    kept = Arguments(version=version)
    kept.add("--save", Shell("$CHECKPOINT_DIR"))
    kept.add("--load", Shell("$CHECKPOINT_DIR"))
    kept.add("--save-interval", Shell("$SAVE_INTERVAL"))
    return kept


def _values(case: Case, layout: Layout, version: Version, options: Options) -> dict[str, Any]:
    """What the templates fill in."""
    named = groups(case, layout, version)
    mock, real = _data(case, layout, version)
    per_node = devices_per_node(layout.world, case.cluster.devices_per_node)
    blanks = _blanks(case, options)
    text = options.label or label(layout)
    return {
        "case": case, "layout": layout, "label": text, "version": version, "iters": _iters(case, options),
        "job": quote(f"{case.model.name}-{layout.world}"), "nodes": layout.world // per_node, "per_node": per_node,
        "groups": {name: list(arguments.lines()) for name, arguments in named.items() if arguments.items},
        "mock": list(mock.lines()), "real": list(real.lines()), "run": list(_run(version).lines()),
        "checkpoints": list(_checkpoints(version).lines()), "blanks": blanks, "settings": settings(case, layout),
        "predicted": _predicted(options.estimate), "off": _switches(case, layout, version),
        "assumed": _assumed(case), "sft": case.training.task == "sft",
    }  # fmt: skip


def devices_per_node(world: int, full: int) -> int:
    """Devices to use on each node: all of them, or the largest count that divides the world.

    >>> devices_per_node(512, 8), devices_per_node(4, 8), devices_per_node(12, 8)
    (8, 4, 6)
    """
    return max(count for count in range(1, min(world, full) + 1) if world % count == 0)


def _iters(case: Case, options: Options) -> int:
    """Optimizer steps: as asked for, or for the tokens of the training, or a short run."""
    if options.train_iters is not None:
        return options.train_iters
    return ceil(case.training.tokens / case.batch.tokens) if case.training.tokens else SHORT_RUN


def _blanks(case: Case, options: Options) -> list[tuple[str, str, str]]:
    """Variables to fill in: name, default, and what they are."""
    model = case.model
    blanks = [
        ("TRAIN_ITERS", str(_iters(case, options)), "optimizer steps"),
        ("LEARNING_RATE", "3e-4", "peak learning rate; Meshwright does not choose it"),
        ("MIN_LEARNING_RATE", "3e-5", "learning rate at the end of the decay"),
        ("WARMUP_FRACTION", "0.01", "share of the run in which the learning rate rises"),
        ("WEIGHT_DECAY", "0.1", ""),
        ("CLIP_GRADIENT", "1.0", "gradient norm is clipped to this"),
        ("ADAM_BETA1", "0.9", ""),
        ("ADAM_BETA2", "0.95", ""),
        ("INIT_STD", "0.02", "standard deviation of the initial weights"),
        ("NORM_EPSILON", "1e-5", "rms_norm_eps or layer_norm_eps of config.json"),
    ]
    if model.position == "rope" and model.rotary_base is None:
        blanks.append(("ROTARY_BASE", "10000", "rope_theta of config.json"))
    if model.kinds[0].attention.latent:
        blanks.append(("ROTARY_SCALING_FACTOR", "1.0", "yarn: factor of rope_scaling"))
        blanks.append(("MSCALE", "1.0", "yarn: mscale of rope_scaling"))
        blanks.append(("MSCALE_ALL_DIM", "1.0", "yarn: mscale_all_dim of rope_scaling"))
    if model.is_moe:
        default = "1e-4" if model.experts and model.experts.correction_bias else "1e-3"
        blanks.append(("MOE_AUX_LOSS_COEFFICIENT", default, "weight of the load-balancing loss"))
    if model.num_mtp_layers:
        blanks.append(("MTP_LOSS_FACTOR", "0.1", "weight of the multi-token-prediction loss"))
    return blanks


def _assumed(case: Case) -> list[str]:
    """Where the arguments stand for something that they do not say exactly."""
    model = case.model
    gated = model.kinds[0].feed_forward.gated
    remarks = [f"Activation: {'a gated' if gated else 'an ungated'} one; exchange the flag if the model has another "
               "(memory and time stay the same)."]  # fmt: skip
    if any(kind.attention.window_tokens for kind in model.kinds):
        remarks.append("Windows are written as sliding windows; chunked attention does not exist in Megatron-LM.")
    if model.position == "rope":
        if model.rotary_base is None:
            remarks.append("The base of RoPE is not known for this model: `ROTARY_BASE` is Megatron-LM's default.")
        if not model.kinds[0].attention.latent:
            remarks.append("RoPE frequencies are not scaled; a model with rope_scaling needs `--use-rope-scaling` or another "
                           "method.")  # fmt: skip
        remarks.append("RoPE acts on all layers; a model with layers without it needs `--no-rope-freq`.")
    return remarks


def _switches(case: Case, layout: Layout, version: Version) -> list[tuple[str, str, str]]:
    """Switches that may be faster but are off: flag, risk level, and what it does."""
    moe, overlap = case.model.is_moe, layout.overlap
    bf16 = case.training.precision.base_dtype == "bf16"
    found = [
        (not overlap.tensor and layout.tensor_parallel > 1 and layout.sequence_parallel, "--tp-comm-overlap",
         "equivalent", "tensor-parallel collectives beside their GEMMs; needs user buffers of Transformer Engine"),
        (moe and layout.expert_parallel > 1 and not overlap.expert and version.minor >= 14,
         "--overlap-moe-expert-parallel-comm", "exact", "expert all-to-all beside compute of another micro-batch"),
        (moe and version.minor >= 14, "--moe-router-fusion", "equivalent", "one kernel for routing; needs TE 2.7"),
        (not loss_in_place(case.implementation), "--cross-entropy-loss-fusion", "equivalent", "loss in place on logits"),
        (bf16 and case.training.precision.gradient_bytes >= 4, "--grad-reduce-in-bf16", "approximate",
         "half the bytes of gradients and of their reduction"),
        (case.training.precision.gemm_dtype == "bf16" and case.cluster.device.supports("fp8"), "--fp8-format hybrid",
         "approximate", "FP8 GEMMs: plan again with a precision of fp8-*"),
    ]  # fmt: skip
    return [(flag, risk, what) for off, flag, risk, what in found if off]


def _predicted(estimate: Estimate | None) -> list[tuple[str, str]]:
    """Predicted figures as a person reads them; empty without an estimate."""
    if estimate is None:
        return []
    tflops = estimate.model_flops_per_s_per_device / 1e12
    return [
        ("step", f"{estimate.step_s:.3g} s"),
        ("throughput", f"{estimate.tokens_per_s:,.0f} tokens/s, {estimate.tokens_per_s_per_device:,.0f} per device"),
        ("model FLOPs", f"{tflops:.0f} TFLOP/s per device, MFU {estimate.mfu_ratio:.1%} ({estimate.flops_convention})"),
        ("memory", f"{estimate.memory_reserved_bytes / GIB:.1f} of {estimate.memory_capacity_bytes / GIB:.1f} GiB "
                   f"on the fullest device (stage {estimate.peak_stage})"),
        ("calibration", estimate.calibration if estimate.calibrated else f"{estimate.calibration}, uncalibrated"),
    ]  # fmt: skip


@cache
def _environment() -> Environment:
    """Templates of this package; a name without a value is our mistake. Jinja is imported when a script is written."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("meshwright.frameworks.megatron", "templates"), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False,
    )  # fmt: skip


def _template(name: str) -> Any:
    """A template by file name."""
    return _environment().get_template(name)
