"""Whether files follow a piece of advice of the guides: by their layout, or by a key or variable that the advice names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.judging.following import follows as followed

if TYPE_CHECKING:
    from meshwright.check.context import Context

LAYOUT = (
    "chatlearn.context-from-8192", "chatlearn.tensor-inside-node", "chatlearn.pipeline-below-microbatches",
    "chatlearn.expert-before-expert-tensor", "chatlearn.experts-for-moe", "chatlearn.virtual-one-or-two",
    "chatlearn.micro-batch-one", "chatlearn.overlap-off-first", "chatlearn.recompute-for-minimal-machines",
    "mindspore.micro-batch-two", "mindspore.distributed-optimizer", "megatron.tensor-range", "megatron.pipeline-range",
    "megatron.tensor-by-size", "megatron.micro-batch-above-stages", "megatron.micro-batch-sixteen", "megatron.sequence-parallel",
    "megatron.overlap-comm", "megatron.zero-three-under-pipeline", "megatron.selective-recommended",
    "playbook.small-full-recompute", "playbook.pure-data-parallel-512", "playbook.zero-two-with-pipeline-1024",
)
"""Rules that a layout of files can follow or break at a price that is worth a finding."""


class Spelling(Struct, frozen=True, kw_only=True):
    """Keys by which files follow a rule."""

    keys: tuple[str, ...]
    wanted: Callable[[object], bool] = lambda value: True
    exists: bool = False
    """Whether the key is real; advice about a key that does not exist is silent where the framework has it after all."""


SPELLINGS: Mapping[str, Spelling] = {
    "megatron.data-parallel-flag": Spelling(keys=("--data-parallel-size",)),
    "megatron.dynamic-dataloader": Spelling(keys=("--dataloader-type",), wanted=lambda value: value == "dynamic", exists=True),
    "megatron.accumulation-flag": Spelling(keys=("--gradient-accumulation-steps",)),
    "megatron.fused-kernels-flag": Spelling(keys=("--use-fused-kernels",)),
    "megatron.flash-attention": Spelling(keys=("--use-flash-attn",), exists=True),
    "megatron.torch-compile": Spelling(keys=("--use-torch-compile",)),
    "megatron.deepspeed-flags": Spelling(keys=("--deepspeed", "--deepspeed_config")),
    "megatron.profile-flags": Spelling(keys=("--profile-step-range", "--profile-output-path")),
    "megatron.no-async-tensor": Spelling(keys=("--no-async-tensor-model-parallel-allreduce",), exists=True),
    "megatron.recompute-activations-is-full": Spelling(keys=("--recompute-activations",), exists=True),
    "megatron.zero-three-under-pipeline": Spelling(keys=("zero_optimization.stage",), wanted=lambda value: value == 3, exists=True),
    "megatron.partition-activations": Spelling(
        keys=("activation_checkpointing.partition_activations",), wanted=lambda value: value is True, exists=True
    ),
}
"""Rule -> keys by which files follow it."""
VARIABLES: Mapping[str, tuple[str, ...]] = {"megatron.nccl-busbw": ("NCCL_DEBUG",)}
"""Rule -> variables of the launch by which files follow it."""
RULES = frozenset({*LAYOUT, *SPELLINGS, *VARIABLES})
"""Rules that files can be seen to follow or not."""


def place_of(context: Context, rule: str) -> str | None:
    """Where the files follow a rule by a key or variable; None where they do not."""
    source, framework = context.reading.source, context.framework
    spelling = SPELLINGS.get(rule)
    guide = rule.partition(".")[0]
    if spelling is not None and guide in framework.facts.guides and rule not in framework.facts.other_rules:
        for key in spelling.keys:
            setting = source.settings.get(key)
            known = framework.surface is not None and framework.surface().find(key, context.reading.version) is not None
            if setting is not None and spelling.wanted(setting.value) and (spelling.exists or not known):
                return setting.place
    return next((source.environment[name].place for name in VARIABLES.get(rule, ()) if name in source.environment), None)


def follows(context: Context, rule: str) -> bool | None:
    """Whether the layout follows a rule; None where the rule is not about it, or nobody can tell."""
    if rule not in LAYOUT or context.case is None or context.layout is None:
        return None
    return followed(rule, context.case, context.layout, context.framework.features)
