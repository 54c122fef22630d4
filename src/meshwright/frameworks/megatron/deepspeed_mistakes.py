"""Flags of guides that Megatron-LM never had, and a DeepSpeed configuration beside its flags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import equal, is_true, whole
from meshwright.frameworks.megatron.asking import ARGUMENTS, at, flags, grid_of, has
from meshwright.frameworks.rules import At, Mistake, checks, values_if
from meshwright.frameworks.surface import Surface

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading

_DEEPSPEED = "DeepSpeed deepspeed/runtime/config.py"
_BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu")
INSTEAD: Mapping[str, str] = {
    "--data-parallel-size": "data parallelism follows: world / (tp x pp x cp)",
    "--gradient-accumulation-steps": "micro-batches follow: --global-batch-size / (--micro-batch-size x dp)",
    "--use-fused-kernels": "fusions are on by default and switched off one by one (--no-masked-softmax-fusion, "
    "--no-rope-fusion ...)",
    "--use-torch-compile": "small functions are compiled by themselves since PyTorch 2.2",
    "--use-flash-attn-v2": "Megatron-DeepSpeed's; here --attention-backend flash",
    "--profile-step-range": "--profile --profile-step-start A --profile-step-end B --use-pytorch-profiler --profile-ranks 0",
    "--profile-output-path": "--tensorboard-dir, with --profile and --use-pytorch-profiler",
    "--zero-stage": "--use-distributed-optimizer is ZeRO-1; --use-megatron-fsdp with --data-parallel-sharding-strategy is "
    "ZeRO-2 and 3",
    "--deepspeed": "Megatron-DeepSpeed's, which is another framework: check with --from megatron-deepspeed",
    "--deepspeed_config": "Megatron-DeepSpeed's, which is another framework: check with --from megatron-deepspeed",
    "--virtual-pipeline-model-parallel-size": "--num-virtual-stages-per-pipeline-rank",
    "--recompute": "--recompute-granularity",
    "--num-key-value-heads": "--group-query-attention --num-query-groups N",
}
"""Flag that no release has -> what is meant by it here."""


@cache
def _other_surface() -> Surface | None:
    """The flags of Megatron-DeepSpeed, where its adapter knows them."""
    from meshwright.frameworks.megatron_deepspeed import MEGATRON_DEEPSPEED

    return MEGATRON_DEEPSPEED.surface() if MEGATRON_DEEPSPEED.surface is not None else None


def _is_json(reading: Reading, file: str) -> bool:
    """Whether a file of the reading is JSON."""
    return file.lower().endswith((".json", ".jsonc")) and any(document.path == file for document in reading.source.documents)


def _json(reading: Reading) -> str | None:
    """The DeepSpeed configuration beside the script."""
    named = has_any(reading, "--deepspeed_config", "--deepspeed-config")
    for document in reading.source.documents:
        if _is_json(reading, document.path):
            sections = {key.split(".")[0] for key in document.settings()}
            if named or sections & {"zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu"}:
                return document.path
    return None


def has_any(reading: Reading, *keys: str) -> str | None:
    """The first of some keys that stands there, known to the framework or not."""
    return next((key for key in keys if reading.source.value(key) is not None), None)


def _accumulation(reading: Reading, case: Case | None) -> Iterator[Values]:
    key = has_any(reading, "--gradient-accumulation-steps", "--gradient_accumulation_steps")
    values = flags(reading)
    if key is None:
        return
    steps, micro, batch = whole(reading.source.value(key)), values.int("--micro-batch-size"), values.int("--global-batch-size")
    dp = grid_of(reading).dp or whole(reading.source.value("--data-parallel-size"))
    if not steps or not micro or not batch or not dp or micro * steps * dp == batch:
        return
    divides = batch % (micro * dp) == 0
    needed = f"{batch // (micro * dp)} micro-batches are needed" if divides else f"{micro * dp} does not divide it"
    yield at(reading, key, micro=micro, accumulation=steps, dp=dp, product=micro * steps * dp, batch=batch, needed=needed,
             expected=batch // (micro * dp) if divides else None)


def _data_parallel(reading: Reading) -> Values | None:
    said, grid = whole(reading.source.value("--data-parallel-size")), grid_of(reading)
    dp: object = grid.dp if grid.dp is not None else "no whole number"
    wrong = said is not None and grid.world is not None and said * grid.tp * grid.pp * grid.cp != grid.world
    return values_if(wrong, world=grid.world, tp=grid.tp, pp=grid.pp, cp=grid.cp, dp=dp, said=said, expected=dp)


def _two_frameworks(reading: Reading, case: Case | None) -> Iterator[Values]:
    other = _other_surface()
    if other is None:
        return
    known = {flag for flag in reading.source.settings if flag.startswith("-")}
    theirs = sorted(flag for flag in known if flag.startswith("--deepspeed") and not has(reading, flag))
    ours = sorted(flag for flag in known if has(reading, flag) and flag not in other.keys)
    if theirs and ours:
        yield at(reading, theirs[0], theirs=", ".join(theirs), ours=", ".join(ours), expected="one framework")


def _switch(reading: Reading, case: Case | None) -> Iterator[Values]:
    key = has_any(reading, "--deepspeed_config", "--deepspeed-config")
    if key and has_any(reading, "--deepspeed") is None:
        yield at(reading, key, expected="--deepspeed")


def _zero_pipeline(reading: Reading) -> Values | None:
    stage, pp = whole(reading.source.value("zero_optimization.stage")), grid_of(reading).pp
    return values_if(_json(reading) is not None and stage is not None and stage >= 2 and pp > 1, stage=stage, pp=pp)


def _no_batch(reading: Reading, case: Case | None) -> Iterator[Values]:
    file = _json(reading)
    if file is not None and not any(reading.source.value(key) is not None for key in _BATCH_KEYS):
        yield {"path": file, "expected": "train_batch_size"}


def _stands(reading: Reading, key: str) -> bool:
    """Whether a key stands in the files with a value, known to the framework or not."""
    return reading.source.value(key) is not None


CHECKS = checks("megatron", (
    # What the guides' arithmetic comes to.
    Mistake("accumulation", "micro-batch {micro} x {accumulation} accumulation steps x data-parallel {dp} = {product} is not the "
            "global batch {batch}: {needed}", _accumulation),
    Mistake("data-parallel", "{world} devices / (tp {tp} x pp {pp} x cp {cp}) make data parallelism {dp}, not {said}",
            At("--data-parallel-size", when=_data_parallel)),
    Mistake("instead", "{flag} is in no release of Megatron-LM: {instead}",
            tuple(At(flag, instead, values={"instead": instead}) for flag, instead in INSTEAD.items()), "advice"),
    Mistake("dynamic-loader", "no data loader of Megatron-LM pads a batch to its longest sample: short samples are packed",
            At("--dataloader-type", "single, cyclic or external", equal("dynamic")), "advice"),
    # DeepSpeed beside Megatron-LM.
    Mistake("two-frameworks", "{theirs} is Megatron-DeepSpeed's, {ours} is Megatron-LM's and Megatron-DeepSpeed lacks it: no "
            "framework has both", _two_frameworks),
    Mistake("deepspeed-switch", "--deepspeed_config without --deepspeed: Megatron-DeepSpeed never reads it and stops at "
            "args.deepspeed_config_dict", _switch, source=_DEEPSPEED),
    Mistake("zero-pipeline", "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism: stage {stage}, pp {pp}",
            At("zero_optimization.stage", 1, when=_zero_pipeline), source=_DEEPSPEED),
    Mistake("deepspeed-batch", "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided", _no_batch,
            source=_DEEPSPEED),
    Mistake("deepspeed-checkpointing", "activation_checkpointing.partition_activations is overridden by the flag "
            "--partition-activations, which is off by default",
            At("activation_checkpointing.partition_activations", "--partition-activations", is_true,
               without=("--partition-activations", "--deepspeed-activation-checkpointing"), when=_json), "warning", _DEEPSPEED),
), given=_stands, source=ARGUMENTS)
