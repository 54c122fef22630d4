"""Flags of guides that Megatron-LM never had, and a DeepSpeed configuration beside its flags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import whole
from meshwright.frameworks.megatron.asking import at, flags, grid_of, has
from meshwright.frameworks.rules import file_rule
from meshwright.frameworks.surface import Surface

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading

CHECKS: list[Check] = []
_rule = partial(file_rule, CHECKS, source="Megatron-LM megatron/training/arguments.py")
_deepspeed = partial(file_rule, CHECKS, source="DeepSpeed deepspeed/runtime/config.py")
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


# What the guides' arithmetic comes to.


@_rule("megatron.accumulation",
       "micro-batch {micro} x {accumulation} accumulation steps x data-parallel {dp} = {product} is not the global batch {batch}: "
       "{needed}")
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


@_rule("megatron.data-parallel", "{world} devices / (tp {tp} x pp {pp} x cp {cp}) make data parallelism {dp}, not {said}")
def _data_parallel(reading: Reading, case: Case | None) -> Iterator[Values]:
    said, grid = whole(reading.source.value("--data-parallel-size")), grid_of(reading)
    if said is not None and grid.world is not None and said * grid.tp * grid.pp * grid.cp != grid.world:
        dp: object = grid.dp if grid.dp is not None else "no whole number"
        yield at(
            reading, "--data-parallel-size", world=grid.world, tp=grid.tp, pp=grid.pp, cp=grid.cp, dp=dp, said=said, expected=dp
        )


@_rule("megatron.instead", "{flag} is in no release of Megatron-LM: {instead}", severity="advice")
def _instead(reading: Reading, case: Case | None) -> Iterator[Values]:
    for flag, instead in INSTEAD.items():
        if reading.source.value(flag) is not None:
            yield at(reading, flag, flag=flag, instead=instead, expected=instead)


@_rule("megatron.dynamic-loader", "no data loader of Megatron-LM pads a batch to its longest sample: short samples are packed",
       severity="advice")
def _dynamic_loader(reading: Reading, case: Case | None) -> Iterator[Values]:
    if reading.source.value("--dataloader-type") == "dynamic":
        yield at(reading, "--dataloader-type", expected="single, cyclic or external")


# DeepSpeed beside Megatron-LM.


@_rule(
    "megatron.two-frameworks",
    "{theirs} is Megatron-DeepSpeed's, {ours} is Megatron-LM's and Megatron-DeepSpeed lacks it: no framework has both",
)
def _two_frameworks(reading: Reading, case: Case | None) -> Iterator[Values]:
    other = _other_surface()
    if other is None:
        return
    known = {flag for flag in reading.source.settings if flag.startswith("-")}
    theirs = sorted(flag for flag in known if flag.startswith("--deepspeed") and not has(reading, flag))
    ours = sorted(flag for flag in known if has(reading, flag) and flag not in other.keys)
    if theirs and ours:
        yield at(reading, theirs[0], theirs=", ".join(theirs), ours=", ".join(ours), expected="one framework")


@_deepspeed(
    "megatron.deepspeed-switch",
    "--deepspeed_config without --deepspeed: Megatron-DeepSpeed never reads it and stops at args.deepspeed_config_dict",
)
def _deepspeed_switch(reading: Reading, case: Case | None) -> Iterator[Values]:
    key = has_any(reading, "--deepspeed_config", "--deepspeed-config")
    if key and has_any(reading, "--deepspeed") is None:
        yield at(reading, key, expected="--deepspeed")


@_deepspeed("megatron.zero-pipeline", "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism: stage {stage}, pp {pp}")
def _zero_pipeline(reading: Reading, case: Case | None) -> Iterator[Values]:
    if _json(reading) is None:
        return
    stage, pp = whole(reading.source.value("zero_optimization.stage")), grid_of(reading).pp
    if stage is not None and stage >= 2 and pp > 1:
        yield at(reading, "zero_optimization.stage", stage=stage, pp=pp, expected=1)


@_deepspeed("megatron.deepspeed-batch", "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided")
def _deepspeed_batch(reading: Reading, case: Case | None) -> Iterator[Values]:
    file = _json(reading)
    if file is not None and not any(reading.source.value(key) is not None for key in _BATCH_KEYS):
        yield {"path": file, "expected": "train_batch_size"}


@_deepspeed("megatron.deepspeed-checkpointing",
            "activation_checkpointing.partition_activations is overridden by the flag --partition-activations, which is off by "
            "default",
            severity="warning")
def _deepspeed_checkpointing(reading: Reading, case: Case | None) -> Iterator[Values]:
    key = "activation_checkpointing.partition_activations"
    flag = has_any(reading, "--partition-activations", "--deepspeed-activation-checkpointing")
    if _json(reading) is not None and reading.source.value(key) is True and flag is None:
        yield at(reading, key, expected="--partition-activations")
